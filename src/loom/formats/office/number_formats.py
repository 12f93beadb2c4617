"""Numbers as a spreadsheet program displays them: from a value and a format code to the text of the cell.

Covers sections and conditions, digits and thousands, percent, scaling, exponents, fractions, literals, currency
symbols, dates, times and durations. The short date of the user's locale (formats 14 and 22) is written as ISO, because
the file does not contain the locale. An invalid code leaves the number unchanged.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

import msgspec

GENERAL: Final = "General"
BUILT_IN: Final[dict[int, str]] = {
    0: GENERAL,
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    5: '"$"#,##0;\\-"$"#,##0',
    6: '"$"#,##0;\\-"$"#,##0',
    7: '"$"#,##0.00;\\-"$"#,##0.00',
    8: '"$"#,##0.00;\\-"$"#,##0.00',
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    14: "yyyy-mm-dd",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "yyyy-mm-dd h:mm",
    37: "#,##0;-#,##0",
    38: "#,##0;-#,##0",
    39: "#,##0.00;-#,##0.00",
    40: "#,##0.00;-#,##0.00",
    41: '#,##0;-#,##0;"-";@',
    42: '"$"#,##0;-"$"#,##0;"$-";@',
    43: '#,##0.00;-#,##0.00;"-"??;@',
    44: '"$"#,##0.00;-"$"#,##0.00;"$-"??;@',
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
    **dict.fromkeys((*range(27, 32), 36, *range(50, 55), 57, 58), "yyyy-mm-dd"),
    **dict.fromkeys((32, 33, 34, 35, 55, 56), "h:mm:ss"),
}
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EPOCH_1900: Final = dt.datetime(1899, 12, 30)  # noqa: DTZ001 - spreadsheets have no time zones
_EPOCH_1904: Final = dt.datetime(1904, 1, 1)  # noqa: DTZ001 - spreadsheets have no time zones
_LEAP_BUG: Final = 60
"""The day 1900-02-29, which did not exist: serial numbers before it are one less."""
_MAX_SERIAL: Final = 2_958_466
_LONGEST_CODE: Final = 255
_MAX_DIGITS: Final = 30
_TOKEN: Final = re.compile(
    r'"(?P<quoted>[^"]*)"?'
    r"|\\(?P<escaped>.)"
    r"|_(?P<pad>.)"
    r"|\*(?P<fill>.)"
    r"|\[(?P<bracket>[^\]]*)\]"
    r"|(?P<ampm>AM/PM|am/pm|A/P|a/p)"
    r"|(?P<general>[Gg][Ee][Nn][Ee][Rr][Aa][Ll]|Standard)"
    r"|(?P<exponent>[Ee][+-])"
    r"|(?P<date>[yY]+|[mM]+|[dD]+|[hH]+|[sS]+(?:\.0+)?|[eEgG]+|[bB]{2,4})"
    r"|(?P<digit>[0#?])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_CONDITION: Final = re.compile(r"(<=|>=|<>|<|>|=)\s*(-?[0-9.]+(?:E[+-]?[0-9]+)?)", re.IGNORECASE)
_ELAPSED: Final = re.compile(r"([hms])\1*", re.IGNORECASE)
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<>": lambda a, b: a != b,
}


class _Part(msgspec.Struct, frozen=True):
    """`kind`: text, digit, point, comma, percent, slash, exponent, date, elapsed, ampm, general, at."""

    kind: str
    text: str = ""


class _Section(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...]
    condition: tuple[str, float] | None
    kind: str
    """`number`, `date`, `general`, `text` (only literals and @)."""
    digits: _Digits | None


class _Digits(msgspec.Struct, frozen=True):
    """The layout of the digits in a number section, computed once."""

    decimals: int
    has_thousands: bool
    scale: int
    """How many times to divide by a thousand."""
    percents: int
    has_exponent: bool
    has_fraction: bool


def display_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Return the text that the cell displays."""
    if code == GENERAL:
        return plain_number(value)
    sections = _sections(code[:_LONGEST_CODE])
    section, is_absolute = _choose(sections, value)
    if section is None:
        return plain_number(value)
    try:
        match section.kind:
            case "date":
                return _display_date(value, section, is_1904=is_1904)
            case "general":
                shown = plain_number(abs(value) if is_absolute else value)
                return "".join(shown if part.kind == "general" else part.text for part in section.parts).strip()
            case "text":
                has_text = any(part.kind == "at" for part in section.parts)
                return plain_number(value) if has_text else "".join(part.text for part in section.parts).strip()
            case _:
                return _display_number(abs(value) if is_absolute else value, section)
    except (ValueError, OverflowError, InvalidOperation):
        return plain_number(value)


def plain_number(value: float) -> str:
    """Return all digits of the number: no exponent for integers, no more digits than a spreadsheet stores."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e21:
        return str(int(value)) if abs(value) <= 2**53 else f"{Decimal(repr(value)):f}".removesuffix(".0")
    shortest = repr(value)
    return (f"{value:.15g}" if len(shortest.lstrip("-")) > 17 else shortest).upper()


def is_date_code(code: str) -> bool:
    """Return whether numbers in this format are dates, times or durations."""
    return any(section.kind == "date" for section in _sections(code[:_LONGEST_CODE])[:1])


@lru_cache(maxsize=1024)
def _sections(code: str) -> tuple[_Section, ...]:
    return tuple(_section(part) for part in _split(code)[:4])


def _split(code: str) -> list[str]:
    parts: list[str] = [""]
    for found in _TOKEN.finditer(code):
        if found["other"] == ";":
            parts.append("")
        else:
            parts[-1] += found[0]
    return parts


def _section(code: str) -> _Section:
    parts: list[_Part] = []
    condition: tuple[str, float] | None = None
    for found in _TOKEN.finditer(code):
        kind = found.lastgroup or ""
        if kind == "bracket":
            inside = found["bracket"]
            compared = _CONDITION.fullmatch(inside)
            if compared is not None:
                condition = compared[1], float(compared[2])
            elif _ELAPSED.fullmatch(inside):
                parts.append(_Part("elapsed", inside.lower()))
            elif inside.startswith("$"):
                parts.append(_Part("text", inside[1:].rpartition("-")[0] if "-" in inside else inside[1:]))
            continue
        parts.append(_part(kind, found))
    kinds = {part.kind for part in parts}
    if kinds & {"date", "elapsed", "ampm"} and not kinds & {"exponent"}:
        kind = "date"
    elif "general" in kinds:
        kind = "general"
    else:
        kind = "number" if "digit" in kinds else "text"
    if kind != "date":
        parts = [_Part("text", part.text) if part.kind == "date" else part for part in parts]
    return _Section(tuple(parts), condition, kind, _digits(parts) if kind == "number" else None)


def _part(kind: str, found: re.Match[str]) -> _Part:
    match kind:
        case "quoted" | "escaped":
            return _Part("text", found[kind])
        case "pad":
            return _Part("text", " ")
        case "fill":
            return _Part("text", "")
        case "other":
            named = {".": "point", ",": "comma", "%": "percent", "/": "slash", "@": "at"}.get(found["other"], "text")
            return _Part(named, found["other"])
        case "date":
            return _Part("date", found["date"].lower())
        case _:
            return _Part(kind, found[0])


def _digits(parts: list[_Part]) -> _Digits:
    places = [at for at, part in enumerate(parts) if part.kind == "digit"]
    exponent = next((at for at, part in enumerate(parts) if part.kind == "exponent"), len(parts))
    slash = next((at for at, part in enumerate(parts) if part.kind == "slash"), None)
    before = [at for at in places if at < exponent]
    point = next((at for at, part in enumerate(parts) if part.kind == "point" and at < exponent), None)
    last = before[-1] if before else -1
    commas = [at for at, part in enumerate(parts) if part.kind == "comma"]
    end_of_whole = point if point is not None else last + 1
    trailing = [
        at for at in commas if last < at < exponent and all(parts[n].kind == "comma" for n in range(last + 1, at))
    ]
    inside = [at for at in commas if before and before[0] < at < end_of_whole and at < last]
    scaling_before_point = [
        at
        for at in commas
        if point is not None and at < point and all(part.kind == "comma" for part in parts[at:point])
    ]
    return _Digits(
        decimals=min(_MAX_DIGITS, sum(1 for at in before if point is not None and at > point)),
        has_thousands=bool(set(inside) - set(scaling_before_point)),
        scale=len(set(trailing) | set(scaling_before_point)),
        percents=sum(1 for part in parts if part.kind == "percent"),
        has_exponent=exponent < len(parts),
        has_fraction=slash is not None and bool(before) and before[0] < slash,
    )


def _choose(sections: tuple[_Section, ...], value: float) -> tuple[_Section | None, bool]:
    """Return the section for a number, and whether it shows the number without its sign."""
    if len(sections) == 4:
        numeric = list(sections[:3])
    elif sections and sections[-1].kind == "text" and any(part.kind == "at" for part in sections[-1].parts):
        numeric = list(sections[:-1]) or list(sections)
    else:
        numeric = list(sections)
    if any(section.condition for section in numeric):
        for section in numeric:
            if section.condition is None or _COMPARE[section.condition[0]](value, section.condition[1]):
                # a section whose condition only negative numbers meet shows the sign itself, for instance as brackets
                limit = section.condition
                return section, limit is not None and value < 0 and limit[0] in ("<", "<=") and limit[1] <= 0
        return None, False
    if value < 0 and len(numeric) > 1:
        return numeric[1], True
    if value == 0 and len(numeric) > 2:
        return numeric[2], False
    return (numeric[0], False) if numeric else (None, False)


def _display_number(value: float, section: _Section) -> str:
    digits = section.digits
    assert digits is not None
    exact = Decimal(repr(value)) * (Decimal(100) ** digits.percents) / (Decimal(1000) ** digits.scale)
    if digits.has_fraction:
        return _display_fraction(exact, section)
    if digits.has_exponent:
        return _display_exponent(exact, section, digits)
    rounded = exact.quantize(Decimal(1).scaleb(-digits.decimals), ROUND_HALF_UP)
    sign = "-" if rounded < 0 else ""
    whole, _, decimals = f"{abs(rounded):f}".partition(".")
    return _place_digits(section.parts, whole, decimals, sign, has_thousands=digits.has_thousands)


def _place_digits(parts: tuple[_Part, ...], whole: str, decimals: str, sign: str, *, has_thousands: bool) -> str:
    """Put the digits into their places: surplus digits of the integer part precede the first place."""
    point = next((at for at, part in enumerate(parts) if part.kind == "point"), len(parts))
    places = [at for at, part in enumerate(parts) if part.kind == "digit" and at < point]
    whole = "" if whole == "0" else whole
    needed = 0
    for count, at in enumerate(reversed(places), 1):
        if parts[at].text == "0":
            needed = count
    whole = whole.zfill(needed) if needed else whole
    out: list[str] = []
    written = 0
    fraction = 0
    shown_decimals = _trim_zeros(parts[point + 1 :], decimals)
    for at, part in enumerate(parts):
        if part.kind == "digit" and at < point:
            left = len(places) - written - 1
            out.append(_digits_at(whole, left, part.text, is_first=written == 0, has_thousands=has_thousands))
            written += 1
        elif part.kind == "digit":
            out.append(shown_decimals[fraction] if fraction < len(shown_decimals) else " " if part.text == "?" else "")
            fraction += 1
        elif part.kind == "point":
            if not places:
                out.append(_group_digits(whole, has_thousands=has_thousands))
            out.append("." if shown_decimals else "")
        elif part.kind == "comma":
            continue
        else:
            out.append(part.text)
    return sign + "".join(out).strip()


def _digits_at(whole: str, left: int, place: str, *, is_first: bool, has_thousands: bool) -> str:
    """Return the digits for one place, which is followed by `left` places."""
    at = len(whole) - left - 1
    if is_first:
        taken = whole[: max(0, at + 1)]
        if not taken:
            return " " if place == "?" else ""
        return "".join(
            _group_digit(digit, len(whole) - n - 1, has_thousands=has_thousands) for n, digit in enumerate(taken)
        )
    if at < 0:
        return " " if place == "?" else ""
    return _group_digit(whole[at], left, has_thousands=has_thousands)


def _group_digit(digit: str, behind: int, *, has_thousands: bool) -> str:
    return f"{digit}," if has_thousands and behind and behind % 3 == 0 else digit


def _group_digits(whole: str, *, has_thousands: bool) -> str:
    return "".join(
        _group_digit(digit, len(whole) - n - 1, has_thousands=has_thousands) for n, digit in enumerate(whole)
    )


def _trim_zeros(parts: tuple[_Part, ...], decimals: str) -> str:
    """Return the decimals without the trailing zeros that optional places (#) do not show."""
    places = [part.text for part in parts if part.kind == "digit"]
    end = len(decimals)
    while end and end <= len(places) and decimals[end - 1] == "0" and places[end - 1] != "0":
        end -= 1
    return decimals[:end]


def _display_exponent(exact: Decimal, section: _Section, digits: _Digits) -> str:
    parts = section.parts
    at = next(place for place, part in enumerate(parts) if part.kind == "exponent")
    point = next((place for place, part in enumerate(parts[:at]) if part.kind == "point"), at)
    step = max(1, sum(1 for part in parts[:point] if part.kind == "digit"))
    power = 0 if exact == 0 else exact.adjusted()
    power -= power % step if step > 1 else 0
    mantissa = exact.scaleb(-power).quantize(Decimal(1).scaleb(-digits.decimals), ROUND_HALF_UP)
    if abs(mantissa) >= Decimal(10) ** step:
        power += step
        mantissa = exact.scaleb(-power).quantize(Decimal(1).scaleb(-digits.decimals), ROUND_HALF_UP)
    sign = "-" if mantissa < 0 else ""
    whole, _, decimals = f"{abs(mantissa):f}".partition(".")
    head = _place_digits(parts[:at], whole if whole != "0" else "0", decimals, sign, has_thousands=False)
    width = sum(1 for part in parts[at:] if part.kind == "digit")
    mark = "-" if power < 0 else "+" if parts[at].text[1] == "+" else ""
    rest = "".join(part.text for part in parts[at + 1 :] if part.kind == "text")
    return f"{head}E{mark}{str(abs(power)).zfill(width)}{rest}"


def _display_fraction(exact: Decimal, section: _Section) -> str:
    parts = section.parts
    slash = next(at for at, part in enumerate(parts) if part.kind == "slash")
    after = [part.text for part in parts[slash + 1 :]]
    fixed = int("".join(text for text in after if text.isascii() and text.isdigit()) or "0")
    places = sum(1 for part in parts[slash + 1 :] if part.kind == "digit")
    groups = re.findall(r"D+", "".join("D" if part.kind == "digit" else " " for part in parts[:slash]))
    sign = "-" if exact < 0 else ""
    size = abs(exact)
    whole = int(size) if len(groups) > 1 else 0
    rest = size - whole
    if fixed:
        denominator = fixed
        numerator = int((rest * denominator).quantize(Decimal(1), ROUND_HALF_UP))
    else:
        from fractions import Fraction

        found = Fraction(rest).limit_denominator(10 ** min(places, 4) - 1)
        numerator, denominator = found.numerator, found.denominator
    if numerator == denominator and len(groups) > 1:
        whole, numerator = whole + 1, 0
    if numerator == 0 and len(groups) > 1:
        return f"{sign}{whole}"
    fraction = f"{numerator}/{denominator}"
    return f"{sign}{whole} {fraction}" if whole else f"{sign}{fraction}"


def _display_date(value: float, section: _Section, *, is_1904: bool) -> str:
    if not -_MAX_SERIAL < value < _MAX_SERIAL:
        return plain_number(value)
    parts = section.parts
    finest = max((len(part.text.partition(".")[2]) for part in parts if part.kind == "date"), default=0)
    has_seconds = any(part.kind in ("date", "elapsed") and part.text.startswith("s") for part in parts)
    step = Decimal(1).scaleb(-finest) if has_seconds else Decimal(1)
    total = (Decimal(repr(abs(value))) * 86_400).quantize(step, ROUND_HALF_UP)
    has_elapsed = any(part.kind == "elapsed" for part in parts)
    sign = "-" if value < 0 else ""
    if value < 0 and not has_elapsed:
        return plain_number(value)
    days, seconds = divmod(total, 86_400)
    serial = int(days)
    epoch = _EPOCH_1904 if is_1904 else _EPOCH_1900 + dt.timedelta(days=serial < _LEAP_BUG)
    moment = epoch + dt.timedelta(days=serial, seconds=int(seconds))
    fraction = f"{total % 1:f}".partition(".")[2]
    is_half_day = any(part.kind == "ampm" for part in parts)
    out: list[str] = []
    for at, part in enumerate(parts):
        match part.kind:
            case "date":
                out.append(
                    _date_part(part.text, moment, fraction, is_minute=_is_minute(parts, at), is_half_day=is_half_day)
                )
            case "elapsed":
                unit = {"h": 3600, "m": 60, "s": 1}[part.text[0]]
                out.append(sign + str(int(total // unit)).zfill(len(part.text)))
                sign = ""
            case "ampm":
                out.append(_day_half(part.text, moment.hour))
            case _:
                out.append(part.text)
    return "".join(out).strip()


def _day_half(form: str, hour: int) -> str:
    is_short = len(form) == 3
    said = ("P" if hour >= 12 else "A") if is_short else ("PM" if hour >= 12 else "AM")
    return said.lower() if form[0] == "a" else said


def _is_minute(parts: tuple[_Part, ...], at: int) -> bool:
    """Return whether `m` means minutes: after hours or before seconds. Otherwise it means months."""
    if not parts[at].text.startswith("m") or len(parts[at].text) > 2:
        return False
    timed = [n for n, part in enumerate(parts) if part.kind in ("date", "elapsed")]
    place = timed.index(at)
    before = parts[timed[place - 1]].text if place else ""
    after = parts[timed[place + 1]].text if place + 1 < len(timed) else ""
    return before.startswith("h") or after.startswith("s")


def _date_part(form: str, moment: dt.datetime, fraction: str, *, is_minute: bool, is_half_day: bool) -> str:
    letter, width = form[0], len(form.partition(".")[0])
    match letter:
        case "y" | "e":
            return f"{moment.year:04d}" if width > 2 or letter == "e" else f"{moment.year % 100:02d}"
        case "m" if is_minute:
            return f"{moment.minute:0{width}d}"
        case "m":
            name = _MONTHS[moment.month - 1]
            if width < 3:
                return f"{moment.month:0{width}d}"
            return {3: name[:3], 5: name[0]}.get(width, name)
        case "d":
            name = _DAYS[moment.weekday()]
            return f"{moment.day:0{width}d}" if width < 3 else name[:3] if width == 3 else name
        case "h":
            hour = (moment.hour - 1) % 12 + 1 if is_half_day else moment.hour
            return f"{hour:0{min(width, 2)}d}"
        case "s":
            decimals = len(form.partition(".")[2])
            whole = f"{moment.second:0{min(width, 2)}d}"
            return f"{whole}.{fraction[:decimals].ljust(decimals, '0')}" if decimals else whole
        case _:
            return ""
