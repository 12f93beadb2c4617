"""What lies on the client: pictures, a document, a workspace."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image, ImageDraw

from browser.client import CHROMIUM, FLAGS
from made import make_sample, run


def draw_image(words: str, *, size: tuple[int, int] = (640, 400), color: str = "#1f3b73", form: str = "PNG") -> bytes:
    image = Image.new("RGB", size, color)
    draw = ImageDraw.Draw(image)
    draw.rectangle((40, 40, size[0] - 40, size[1] - 40), fill="#f7f4ee")
    draw.text((70, 70), words, fill="#222222", font_size=34)
    data = io.BytesIO()
    image.save(data, form)
    return data.getvalue()


def chart() -> bytes:
    """How long a gateway waited, minute by minute, and where it gave up."""
    image = Image.new("RGB", (960, 480), "#ffffff")
    draw = ImageDraw.Draw(image)
    draw.text((40, 26), "Gateway: seconds until the app answers", fill="#1c1b19", font_size=28)
    draw.line((40, 150, 920, 150), fill="#a3271b", width=2)
    draw.text((724, 116), "gives up after 30 s", fill="#a3271b", font_size=22)
    for at, seconds in enumerate((2, 2, 3, 2, 4, 3, 6, 9, 14, 22, 30, 30, 30, 30)):
        left, color = 46 + at * 63, "#c8553d" if seconds == 30 else "#1f6f8b"
        draw.rectangle((left, 420 - seconds * 9, left + 44, 420), fill=color)
        draw.text((left, 428), f"12:{at:02}", fill="#625e55", font_size=17)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def file_payload(name: str, data: bytes, media_type: str = "image/png") -> tuple[str, str, str]:
    """A file as a paste or a drop carries it."""
    return name, media_type, base64.b64encode(data).decode()


def manual_pdf(pages: int = 32) -> Path:
    """A PDF of that many pages with text, printed by Chromium."""

    def build(path: Path) -> None:
        body = "".join(
            f"<section><h1>Gateway manual, chapter {number}</h1>{'<p>The gateway waits for the app. ' * 6}</section>"
            for number in range(1, pages + 1)
        )
        page = path.with_name("manual.html")
        page.write_text(f"<style>section {{ break-after: page }} h1 {{ color: #1f3b73 }}</style>{body}")
        command = (CHROMIUM, "--headless", *FLAGS, "--no-pdf-header-footer", f"--print-to-pdf={path}", page)
        run(*command)

    return make_sample("manual.pdf", build)


TEXT_ONLY_MODEL = """
[models."ollama/llama3.2"]
base_url = "http://127.0.0.1:9"
capabilities = { vision = false, native_pdf = false, context_tokens = 8192 }
"""

AGENT = """
[agents.reviewer]
description = "Reads, and changes nothing"
tools = ["read_file", "list_files"]
"""


def write_workspace(folder: Path, models: str = "") -> None:
    """Files that tools read; beside the folder the settings of the daemon: a text-only model, an agent, a command."""
    (folder.parent / "loom.toml").write_text(TEXT_ONLY_MODEL + AGENT + models)
    (folder.parent / "commands").mkdir()
    greet = "---\ndescription: Greet someone\n---\n!echo Good day, $ARGUMENTS."
    (folder.parent / "commands/greet.md").write_text(greet)
    (folder / "shots").mkdir()
    (folder / "shots" / "login.png").write_bytes(draw_image("Error 502: upstream timed out"))
    (folder / "shots" / "gateway.png").write_bytes(chart())
    (folder / "deploy.log").write_text("12:00 deploy ok\n12:05 error 502: upstream timed out after 30 s\n")
    (folder / "nginx.conf").write_text("proxy_read_timeout 30s;\n")
