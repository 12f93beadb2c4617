"""Media in and out, on a running daemon. The numbers are those of the hardening checklist."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from PIL import Image
from PIL.ExifTags import GPS, IFD

from daemon.asking import api_of, new_session, request, sample, say, upload
from daemon.running import DaemonProcess
from daemon.running import daemon as running
from formats import made_pdfs
from loom.testing import sample_png
from made import make_sample
from patience import PATIENCE_SECONDS
from s3_server import moto_server, new_bucket


def photo_with_place(path: Path) -> None:
    exif = Image.Exif()
    exif[0x010F] = "SecretCamera"
    exif.get_ifd(IFD.GPSInfo)[GPS.GPSLatitude] = (48.0, 51.0, 30.0)
    Image.radial_gradient("L").convert("RGB").resize((900, 600)).save(
        path, "JPEG", exif=exif, comment=b"<script>1</script>"
    )


def document_of_three_pages(path: Path) -> None:
    first, *others = [Image.new("RGB", (600, 800), shade) for shade in ("white", "gray", "black")]
    first.save(path, "PDF", save_all=True, append_images=others)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


PNG = sample("login.png")
SEEING = ("anthropic/claude-opus-5", "openai/gpt-5.5")
PDF = sample("leaflet.pdf")


@pytest.mark.parametrize("how", ["form", "raw", "base64", "data URL"])
def test_a_file_comes_in_by_every_door_and_is_the_same_file(api: httpx2.Client, how: str) -> None:
    encoded = base64.b64encode(PNG).decode()
    match how:
        case "form":
            answer = api.post("/v1/media", files={"file": ("login.png", PNG)})
        case "raw":
            headers = {"Content-Type": "image/png"}
            answer = api.post("/v1/media?name=login.png", content=PNG, headers=headers)
        case "base64":
            answer = api.post("/v1/media", json={"base64": encoded, "name": "login.png"})
        case _:
            answer = api.post("/v1/media", json={"base64": f"data:image/gif;base64,{encoded}", "name": "login.png"})
    found = answer.json()
    assert answer.status_code in (200, 201)
    assert found["id"] == found["digest"] == digest(PNG)
    assert (found["kind"], found["mime"], found["width"], found["height"]) == ("image", "image/png", 900, 500)
    assert (found["bytes"], found["name"]) == (len(PNG), "login.png")
    assert found["block"]["media"]["digest"] == digest(PNG)


def test_what_the_store_has_need_not_be_sent_again(api: httpx2.Client) -> None:
    unique = PNG + b""  # the bytes of this test are known from the tests before; a text is new
    text = b"only this test says so\n"
    assert api.head(f"/v1/media/{digest(text)}").status_code == 404
    assert api.post("/v1/media", json={"digest": digest(text)}).status_code == 404
    assert upload(api, text, "a.txt")["new"]
    assert api.head(f"/v1/media/{digest(text)}").status_code == 200
    again = api.post("/v1/media", json={"digest": digest(text), "name": "b.txt"})
    assert again.status_code == 200
    assert (again.json()["new"], again.json()["kind"], again.json()["name"]) == (False, "text", "b.txt")
    assert upload(api, unique)["digest"] == digest(PNG)


@pytest.mark.parametrize("media_type", ["application/json", "text/plain", "application/octet-stream"])
@pytest.mark.parametrize(
    "content",
    ['{"url": "http://127.0.0.1:9/x"}', '{"digest": "sha256:00"}', '{"base64": "aGk="}', '{"rows": [1]}', "[1]"],
)
def test_a_named_upload_is_a_file_whatever_its_type_and_content(
    api: httpx2.Client, media_type: str, content: str
) -> None:
    data = content.encode()
    answer = api.post("/v1/media?name=data.json", content=data, headers={"Content-Type": media_type})
    found = answer.json()
    assert answer.status_code in (200, 201), found
    assert (found["kind"], found["digest"], found["name"]) == ("text", digest(data), "data.json")
    assert found["block"]["text"] == f"[file: data.json]\n{content}"


def test_the_same_text_under_another_name_carries_that_name(api: httpx2.Client) -> None:
    data = b"the same words\n"
    upload(api, data, "first.txt")
    known = api.post("/v1/media", json={"digest": digest(data), "name": "second.md"}).json()
    assert known["block"]["text"] == "[file: second.md]\nthe same words\n"


def test_documents_and_sound_are_measured(api: httpx2.Client) -> None:
    found = upload(api, PDF, "leaflet.pdf")
    assert (found["kind"], found["pages"]) == ("document", 2)
    assert found["block"]["type"] == "document"


@pytest.mark.parametrize(
    ("data", "name", "status", "code"),
    [
        (b"", "empty.png", 422, "media.unreadable"),
        (PNG[:500], "cut.png", 422, "media.unreadable"),
        (b"PK\x03\x04" + bytes(100), "a.zip", 422, "media.unreadable"),
        (b"\x7fELF" + bytes(200), "run", 415, "media.unsupported"),
        (b"%PDF-1.4\nnothing", "broken.pdf", 422, "media.unreadable"),
    ],
)
def test_23_what_the_door_refuses_leaves_nothing_behind(
    api: httpx2.Client, data: bytes, name: str, status: int, code: str
) -> None:
    answer = api.post(f"/v1/media?name={name}", content=data, headers={"Content-Type": "application/octet-stream"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "/tmp" not in answer.text and "0x" not in answer.text
    assert api.head(f"/v1/media/{digest(data)}").status_code == 404


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd.png", "passwd.png"),
        ("a\nb\r\nSet-Cookie: x=1.png", "abSet-Cookie: x=1.png"),
        ("evil\u202egnp.exe.png", "evilgnp.exe.png"),
        ("x" * 400 + ".png", None),
        ('quo"te\\s.png', "s.png"),
        ("CON", "CON"),
        (".htaccess", ".htaccess"),
        ("日本語.png", "日本語.png"),
        ("..", ""),
    ],
)
def test_13_names_are_only_labels(api: httpx2.Client, house: DaemonProcess, name: str, shown: str | None) -> None:
    found = upload(api, PNG, name)
    assert len(found["name"].encode()) <= 255
    if shown:
        assert found["name"] == shown
    answer = api.get(f"/v1/media/{digest(PNG)}", params={"name": name})
    disposition = answer.headers["content-disposition"]
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert disposition.count('"') in (0, 2)
    assert not list(house.home.rglob("passwd*")) and not list(house.home.rglob("CON*"))


def test_bytes_are_served_for_ever_with_tags_and_ranges(api: httpx2.Client) -> None:
    upload(api, PDF, "leaflet.pdf")
    url = f"/v1/media/{digest(PDF)}"
    whole = api.get(url)
    assert whole.content == PDF
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    etag = whole.headers["etag"]
    assert api.get(url, headers={"If-None-Match": etag}).status_code == 304
    assert api.get(url, headers={"If-None-Match": f'"x", W/{etag}'}).status_code == 304
    assert api.get(url, headers={"If-None-Match": '"other"'}).status_code == 200
    head = api.head(url)
    assert head.headers["content-length"] == str(len(PDF)) and head.content == b""
    for asked, part in [("0-9", PDF[:10]), ("10-", PDF[10:]), ("-7", PDF[-7:]), (f"5-{10**17}", PDF[5:])]:
        answer = api.get(url, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, part), asked
    assert api.get(url, headers={"Range": "bytes=3-4"}).headers["content-range"] == f"bytes 3-4/{len(PDF)}"
    for asked in (f"{len(PDF)}-", "9-3", "-0"):
        answer = api.get(url, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{len(PDF)}"), asked
    for odd in ("bytes=0-1,5-6", "lines=0-1", "bytes=a-b", "bytes=-", "0-1"):
        answer = api.get(url, headers={"Range": odd})
        assert answer.status_code in (200, 416) and (answer.status_code == 416 or answer.content == PDF), odd
    stale = api.get(url, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert stale.content == PDF


def test_28_ten_thousand_ranges_cost_nothing(house: DaemonProcess, api: httpx2.Client) -> None:
    upload(api, PDF)
    ranges = "bytes=" + ",".join(["0-"] * 10_000)
    headers = {"Host": house.url[7:], "Range": ranges}
    assert request(house, f"GET /v1/media/{digest(PDF)}", headers) in (200, 400, 416, 431)
    assert api.get("/healthz", timeout=PATIENCE_SECONDS).status_code == 200


HOSTILE: dict[str, bytes] = {
    "script.svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "page.html": b"<!doctype html><html><body><script>alert(1)</script></body></html>",
    "script.js": b"alert(document.cookie)\n",
    "leaflet.pdf": PDF,
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_30_what_could_run_is_a_download_under_a_closed_policy(api: httpx2.Client, name: str) -> None:
    found = upload(api, HOSTILE[name], name)
    answer = api.get(f"/v1/media/{found['digest']}", params={"name": name})
    assert answer.content == HOSTILE[name]
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] in ("text/plain; charset=utf-8", "application/pdf")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["cache-control"].startswith("private")


def test_30_a_picture_with_a_page_behind_it_is_served_as_a_picture_alone(api: httpx2.Client) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("index.html", "<script>alert(1)</script>")
    both = PNG + archive.getvalue()
    found = upload(api, both, "both.png")
    answer = api.get(f"/v1/media/{found['digest']}")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content == PNG


def test_33_no_form_of_a_photo_tells_where_it_was_taken(api: httpx2.Client) -> None:
    data = make_sample("place.jpg", photo_with_place).read_bytes()
    assert b"SecretCamera" in data
    found = upload(api, data, "place.jpg")
    session = new_session(api)
    say(api, session, "!echo ok", blocks=[{"type": "image_ref", "image_id": found["digest"]}])
    for form in ("full", "low", "thumb", "sent:anthropic/claude-opus-5", "sent:loom/spark"):
        answer = api.get(f"/v1/media/{found['digest']}", params={"v": form})
        assert answer.status_code == 200, answer.text
        assert b"SecretCamera" not in answer.content and b"<script>" not in answer.content
        with Image.open(io.BytesIO(answer.content)) as image:
            assert not image.getexif() and "comment" not in image.info
    of_session = api.get(f"/v1/sessions/{session}/images/{found['digest']}")
    assert of_session.status_code == 200 and b"SecretCamera" not in of_session.content


def test_forms_are_pictures_of_the_right_size(api: httpx2.Client) -> None:
    photo = upload(api, make_sample("place.jpg", photo_with_place).read_bytes())["digest"]
    assert max(_size(api, photo, "low")) == 512
    assert max(_size(api, photo, "thumb")) == 320
    assert _size(api, photo, "full") == (900, 600)
    pages = upload(api, make_sample("three.pdf", document_of_three_pages).read_bytes())
    assert pages["pages"] == 3
    assert max(_size(api, pages["digest"], "page:3")) > 600
    assert max(_size(api, pages["digest"], "thumb:2")) == 240
    assert max(_size(api, pages["digest"], "thumb")) == 320
    beyond = api.get(f"/v1/media/{pages['digest']}", params={"v": "page:4"})
    assert 400 <= beyond.status_code < 500
    assert api.get(f"/v1/media/{photo}", params={"v": "page:1"}).status_code == 415
    assert api.get(f"/v1/media/{photo}", params={"v": "huge"}).status_code == 422


def _size(api: httpx2.Client, found: str, form: str) -> tuple[int, int]:
    answer = api.get(f"/v1/media/{found}", params={"v": form})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] in ("image/png", "image/jpeg", "image/webp")
    with Image.open(io.BytesIO(answer.content)) as image:
        return image.size


def test_sent_is_what_that_model_would_get(api: httpx2.Client) -> None:
    wide = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((5000, 50)).save(wide, "JPEG")
    found = upload(api, wide.getvalue(), "wide.jpg")["digest"]
    session = new_session(api)
    say(api, session, "nobody answers: it has no key", blocks=[{"type": "media", "digest": found}], model=SEEING[0])
    for model in SEEING:
        plan = api.post(f"/v1/sessions/{session}/plan", json={"models": [model]}).json()
        (row,) = [row for row in plan["rows"] if row["digest"] == found]
        sent = api.get(f"/v1/media/{found}", params={"v": f"sent:{model}", "session": session})
        wire = api.get(f"/v1/sessions/{session}/wire", params={"model": model}).text
        assert sent.status_code == 200
        assert max(_size(api, found, f"sent:{model}")) < 5000
        assert row["by_model"][model]["bytes"] >= len(sent.content) * 4 // 3
        assert found in wire
    blind = api.get(f"/v1/media/{found}", params={"v": "sent:deepseek/deepseek-chat"})
    assert (blind.status_code, blind.json()["error"]["code"]) == (404, "media.not_sent")


def test_words_of_documents_are_read(api: httpx2.Client) -> None:
    found = upload(api, PDF, "leaflet.pdf")["digest"]
    whole = api.get(f"/v1/media/{found}/text").json()
    second = api.get(f"/v1/media/{found}/text", params={"page": 2}).json()
    assert len(second["text"]) < len(whole["text"])
    assert api.get(f"/v1/media/{found}/text", params={"page": -1}).status_code == 422


def test_an_image_of_another_session_is_not_found_through_this_one(api: httpx2.Client) -> None:
    found = upload(api, sample_png(20, 17))["digest"]
    mine, other = new_session(api), new_session(api)
    say(api, mine, "!echo ok", blocks=[{"type": "image_ref", "image_id": found}])
    assert api.get(f"/v1/sessions/{mine}/images/{found}").status_code == 200
    assert api.get(f"/v1/sessions/{other}/images/{found}").status_code == 404


def test_media_in_a_bucket_are_served_the_same_way(tmp_path: Path) -> None:
    with (
        moto_server() as s3,
        running(tmp_path / "home", {"LOOM_MEDIA__URL": new_bucket(s3)}) as house,
        api_of(house) as api,
    ):
        assert upload(api, PDF, "leaflet.pdf")["new"]
        url = f"/v1/media/{digest(PDF)}"
        assert api.get(url).content == PDF
        assert api.get(url, headers={"Range": "bytes=100-299"}).content == PDF[100:300]
        assert api.get(url, headers={"Range": "bytes=-5"}).content == PDF[-5:]
        assert api.head(url).headers["content-length"] == str(len(PDF))
        assert max(_size(api, digest(PDF), "thumb")) == 320
        assert not (house.home / "media").exists()


PATHS = [
    "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%252e%252e%252fetc", "..\\..\\etc\\passwd", "/etc/passwd",
    "sha256:../../token", "file:///etc/passwd", "//host/share", "%00", "a" * 4096, "．．／etc", "sha256:" + "G" * 64,
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_9_no_path_parameter_leads_to_a_file(house: DaemonProcess, api: httpx2.Client, path: str) -> None:
    for place in (
        f"/v1/media/{path}", f"/v1/media/{path}/text", f"/v1/sessions/{path}", f"/v1/sessions/{path}/export",
        f"/assets/{path}", f"/v1/sessions/{path}/images/{path}", f"/v1/keys/{path}",
    ):  # fmt: skip
        status = request(house, f"GET {_encoded(place)}", {"Host": house.url[7:]})
        assert status in (0, 400, 404, 405, 414), place
    session = new_session(api)
    attached = api.post(f"/v1/sessions/{session}/messages", json={"blocks": [{"type": "file", "path": path or "x"}]})
    assert 400 <= attached.status_code < 500
    assert house.token not in attached.text


def _encoded(place: str) -> str:
    return "".join(
        char if char.isascii() and char not in ' "<>\\^`{|}' else f"%{byte:02X}"
        for char in place
        for byte in char.encode()[:1]
    )


def test_10_files_of_the_workspace_are_attached_and_nothing_outside_it(api: httpx2.Client, tmp_path: Path) -> None:
    workspace, beside = tmp_path / "ws", tmp_path / "ws-secret"
    workspace.mkdir()
    beside.mkdir()
    (workspace / "notes.md").write_text("the plan is simple\n")
    (workspace / ".env").write_text("KEY=canary-1\n")
    (beside / "secret.txt").write_text("canary-2\n")
    (workspace / "link.txt").symlink_to(beside / "secret.txt")
    (workspace / "ignored.log").write_text("x\n")
    (workspace / ".gitignore").write_text("*.log\n")
    session = new_session(api, workspace=str(workspace))
    files: dict[str, Any] = api.get(f"/v1/sessions/{session}/files").json()
    assert files["files"] == [".env", ".gitignore", "notes.md"]
    assert api.get(f"/v1/sessions/{session}/files", params={"q": "nts"}).json()["files"] == ["notes.md"]
    history = say(api, session, "read it", blocks=[{"type": "file", "path": "notes.md"}])
    assert "the plan is simple" in history["messages"][0]["blocks"][1]["text"]
    for path in ("../ws-secret/secret.txt", "link.txt", ".env", str(beside / "secret.txt"), ".", "/dev/zero"):
        refused = api.post(f"/v1/sessions/{session}/messages", json={"blocks": [{"type": "file", "path": path}]})
        assert refused.status_code == 422, path
        assert "canary" not in refused.text


def test_a_locked_pdf_comes_in_with_its_password_and_stays_without_it(api: httpx2.Client) -> None:
    locked = made_pdfs.encrypted_pdf("öffne dich").read_bytes()
    binary = {"Content-Type": "application/octet-stream"}
    refused = api.post("/v1/media?name=plan.pdf", content=locked, headers=binary)
    assert refused.json()["error"]["code"] == "media.encrypted"
    wrong = api.post("/v1/media?name=plan.pdf", content=locked, headers=binary | {"X-Loom-Password": "no"})
    assert wrong.json()["error"]["code"] == "media.encrypted"

    given = binary | {"X-Loom-Password": quote("öffne dich")}
    raw = api.post("/v1/media?name=plan.pdf", content=locked, headers=given)
    encoded = base64.b64encode(locked).decode()
    json = api.post("/v1/media", json={"base64": encoded, "name": "plan.pdf", "password": "öffne dich"})

    for answer in (raw, json):
        assert answer.status_code < 300, answer.text
        assert "was unlocked" in answer.json()["notices"][0]
        kept = api.get(f"/v1/media/{answer.json()['digest']}").content
        assert kept.startswith(b"%PDF") and b"/Encrypt" not in kept
