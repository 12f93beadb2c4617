"""Is it text, in which encoding, and what does it say?"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import Unreadable
from loom.formats.text import decode_text, encoding_of, line_count, lines_of

SAMPLE = "Grüße aus Köln: 3 × 4 = 12 €\nZweite Zeile\tmit Tabulator\n" * 10


@pytest.mark.parametrize(
    ("codec", "mark", "said"),
    [
        ("utf-8", b"", "utf-8"),
        ("utf-8", b"\xef\xbb\xbf", "utf-8"),
        ("utf-16-le", b"\xff\xfe", "utf-16-le"),
        ("utf-16-be", b"\xfe\xff", "utf-16-be"),
        ("utf-16-le", b"", "utf-16-le"),
        ("utf-16-be", b"", "utf-16-be"),
        ("utf-32-le", b"\xff\xfe\0\0", "utf-32-le"),
        ("utf-32-be", b"\0\0\xfe\xff", "utf-32-be"),
        ("utf-32-le", b"", "utf-32-le"),
        ("utf-32-be", b"", "utf-32-be"),
    ],
)
def test_unicode_is_read_with_and_without_a_mark(codec: str, mark: bytes, said: str) -> None:
    assert decode_text(mark + SAMPLE.encode(codec)) == (SAMPLE, said, ())


def test_windows_1252_is_converted_and_said() -> None:
    text, encoding, notices = decode_text(SAMPLE.encode("cp1252"), "old.txt")
    assert (text, encoding) == (SAMPLE, "windows-1252")
    assert notices == ("old.txt is not UTF-8; it was read as Windows-1252 (Western European).",)


@pytest.mark.parametrize(
    ("head", "codec", "said"),
    [
        ('<?xml version="1.0" encoding="windows-1251"?><a>', "cp1251", "windows-1251"),
        ('<html><head><meta charset="KOI8-R"></head><body>', "koi8-r", "koi8-r"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-5">', "iso8859-5", "iso8859-5"),
        ("Content-Type: text/plain; charset=koi8-u\n\n", "koi8-u", "koi8-u"),
        ("# -*- coding: cp866 -*-\n", "cp866", "cp866"),
        ('<?xml version="1.0" encoding="Shift_JIS"?><a>', "cp932", "cp932"),
        ('<meta charset="gb2312">', "gb18030", "gb18030"),
        ("# -*- coding: euc-jp -*-\n", "euc-jp", "euc_jp"),
        ('<meta charset="windows-1251">' + "<br>" * 5000, "cp1251", "windows-1251"),
    ],
    ids=[
        "xml",
        "html",
        "http-equiv",
        "mail",
        "python",
        "japanese xml",
        "chinese html",
        "japanese python",
        "long ascii",
    ],
)
def test_an_old_encoding_that_is_declared_is_believed(head: str, codec: str, said: str) -> None:
    text = head + "Привет, мир. Это обычный текст\n"
    assert decode_text(text.encode(codec)) == (text, said, ())


LANGUAGES = {
    "de": (
        "Der Bericht ist für Montag fällig; die Prüfung läuft bereits. Größere Änderungen müssen wir später überlegen."
    ),
    "fr": ("Le rapport est prêt, mais la réunion a été déplacée à l'été. Où êtes-vous passés après le déjeuner, déjà?"),
    "cs": (
        "Zpráva bude hotová v pondělí; "
        "příští týden začne zkouška. Větší změny musíme ještě pečlivě zvážit, řekl ředitel."
    ),
    "pl": (
        "Sprawozdanie będzie gotowe w poniedziałek, a później zaczną się próby. "
        "Większe zmiany trzeba jeszcze przemyśleć."
    ),
    "ru": (
        "Отчёт будет готов в понедельник, проверка уже идёт. "
        "О больших изменениях мы должны подумать позже, сказал директор."
    ),
    "el": (
        "Η έκθεση θα είναι έτοιμη τη Δευτέρα και ο έλεγχος έχει ήδη αρχίσει. "
        "Για τις μεγάλες αλλαγές θα μιλήσουμε αργότερα."
    ),
    "tr": (
        "Rapor pazartesi günü hazır olacak, denetim şimdiden başladı. "
        "Büyük değişiklikleri daha sonra düşünmemiz gerekiyor."
    ),
    "he": ("הדוח יהיה מוכן ביום שני והבדיקה כבר התחילה. על שינויים גדולים יותר נצטרך לחשוב מאוחר יותר, אמר המנהל."),
    "ar": (
        "سيكون التقرير جاهزا يوم الاثنين وقد بدأ الفحص بالفعل. علينا أن نفكر في التغييرات الكبيرة لاحقا كما قال المدير."
    ),
    "zh": ("报告将在星期一完成，检查已经开始了。关于更大的修改，我们以后再考虑，经理这样说。请把文件发给所有的同事。"),
    "zh_TW": (
        "報告將在星期一完成，檢查已經開始了。關於更大的修改，我們以後再考慮，經理這樣說。請把文件寄給所有的同事。"
    ),
    "ja": (
        "報告書は月曜日に完成します。検査はもう始まっています。大きな変更については、あとで考えなければなりません。"
    ),
    "ko": (
        "보고서는 월요일에 완성될 것이고 검사는 이미 시작되었습니다. "
        "더 큰 변경은 나중에 생각해야 한다고 부장이 말했습니다."
    ),
    "lt": (
        "Ataskaita bus parengta pirmadienį, o patikrinimas jau prasidėjo. "
        "Apie didesnius pakeitimus turėsime pagalvoti vėliau."
    ),
}
KINDS_OF_ENCODING = [
    ("gbk", "zh"),
    ("gb18030", "zh"),
    ("big5", "zh_TW"),
    ("shift_jis", "ja"),
    ("euc_jp", "ja"),
    ("iso2022_jp", "ja"),
    ("cp949", "ko"),
    ("cp1250", "cs"),
    ("iso8859-2", "pl"),
    ("cp1251", "ru"),
    ("koi8-r", "ru"),
    ("iso8859-5", "ru"),
    ("cp866", "ru"),
    ("cp1252", "de"),
    ("iso8859-15", "fr"),
    ("cp1253", "el"),
    ("iso8859-7", "el"),
    ("cp1254", "tr"),
    ("cp1255", "he"),
    ("cp1256", "ar"),
    ("cp1257", "lt"),
]


@pytest.mark.parametrize(("codec", "language"), KINDS_OF_ENCODING)
@pytest.mark.parametrize("shape", ["prose", "csv", "behind ascii"])
def test_an_encoding_that_nothing_declares_is_detected_and_said(codec: str, language: str, shape: str) -> None:
    lines = [f"{number}. {LANGUAGES[language]}" for number in range(1, 31)]
    text = "\n".join(lines) + "\n"
    if shape == "csv":
        text = "id;name;value\n" + "".join(f"{number};{line};{number * 7}\n" for number, line in enumerate(lines))
    elif shape == "behind ascii":
        text = "x = 1\n" * 3000 + text
    decoded, encoding, notices = decode_text(text.encode(codec), "old.txt")
    assert decoded == text
    assert encoding != "utf-8"
    if codec != "iso2022_jp":
        assert len(notices) == 1 and notices[0].startswith("old.txt is not UTF-8; it was read as ")


def test_a_picture_or_program_is_never_taken_for_text_of_another_alphabet() -> None:
    dice = random.Random(7)
    for size in (64, 300, 5000, 40_000):
        assert encoding_of(dice.randbytes(size)) is None


@pytest.mark.parametrize("declared", ["windows-1251", "utf-8", "rot13", "utf-7", "no-such-thing"])
def test_a_declaration_that_cannot_be_true_is_not_believed(declared: str) -> None:
    data = f'<meta charset="{declared}">'.encode()
    assert encoding_of(data + b"\x98\x81" * 30 + bytes(range(14, 27)) * 9) is None
    assert encoding_of(data + "Привет".encode()) == "utf-8"


@pytest.mark.parametrize("piece", ["a\fb\vc\x1c\x85\u2028d", "x" * 70_000, "é"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_where_editors_end_them_and_nowhere_else(piece: str, end: str) -> None:
    lines = [piece, "", piece * 2, *["short"] * 30_000]
    for last in ("", end):
        text = end.join(lines) + last
        assert list(lines_of(text)) == lines
        assert line_count(text) == len(lines)
    assert (list(lines_of("")), line_count("")) == ([], 0)
    assert (list(lines_of(end)), line_count(end)) == ([""], 1)


@pytest.mark.parametrize("cut", range(8))
def test_a_character_that_the_window_cuts_in_two_does_no_harm(cut: int) -> None:
    data = b"a" * (8192 - cut) + "日本語🙂".encode() * 50
    assert encoding_of(data) == "utf-8"
    assert decode_text(data)[0].endswith("日本語🙂")


def test_a_character_that_the_end_cuts_in_two_is_not_utf_8() -> None:
    assert encoding_of("日本語".encode()[:-1] * 3) != "utf-8"


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + bytes(200),
        random.Random(5).randbytes(5000),
        bytes(range(32)) * 20,
        b"text with a NUL \0 in it",
        b"\xff\xfe" + b"\x00\xd8" * 40,
        b"\xff\xfeodd",
    ],
    ids=["program", "random", "controls", "nul", "lone surrogates", "odd length"],
)
def test_what_is_not_text_in_a_known_encoding_is_refused(data: bytes) -> None:
    assert encoding_of(data) is None
    with pytest.raises(Unreadable, match="Save it as UTF-8"):
        decode_text(data, "thing.txt")


def test_up_to_one_in_twenty_characters_may_be_a_control_character() -> None:
    assert encoding_of(b"\x01" * 5 + b"a" * 95) == "utf-8"
    assert encoding_of(b"\x01" * 6 + b"a" * 94) is None
    assert encoding_of(b"\x1b[31mred\x1b[0m\r\n\x08\x0c" * 50) == "utf-8"


def test_damage_behind_the_window_is_replaced_and_counted() -> None:
    text, encoding, notices = decode_text("ä".encode() * 9000 + b"\xff\xff", "log.txt")
    assert (encoding, text[-2:]) == ("utf-8", "\ufffd\ufffd")
    assert notices == ("2 damaged characters in log.txt are shown as \ufffd.",)
    text, encoding, notices = decode_text(b"x" * 9000 + b" caf\xe9", "menu.txt")
    assert (encoding, text[-4:]) == ("windows-1252", "café")
    assert len(notices) == 1


def test_nul_behind_the_window_is_made_visible() -> None:
    text, _, notices = decode_text(b"x" * 9000 + b"\0end", "log.txt")
    assert text.endswith("␀end")
    assert notices == ("NUL characters in log.txt are shown as ␀.",)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1), st.sampled_from(["utf-8", "utf-8-sig"]))
def test_all_printable_utf_8_comes_back(text: str, codec: str) -> None:
    decoded, _, notices = decode_text(text.encode(codec))
    assert (decoded, notices) == (text.removeprefix("\ufeff"), ())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_are_not(data: bytes) -> None:
    if encoding_of(data) is None:
        with pytest.raises(Unreadable):
            decode_text(data)
    else:
        assert "\0" not in decode_text(data)[0]
