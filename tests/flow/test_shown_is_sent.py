"""Shown is sent: what an interface shows of the next request is the body that then reaches the far side of a socket.

Generated configurations × sessions × learned refusals × quarantine × overrides × attachments × uploads × model
switches × aging. The command, the library and the daemon each show it just before it is sent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import random
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image

from daemon.running import TOKEN, Served, serving
from flow.far_models import PLATFORMS, WIRES, is_question, speak
from loom.agent.compact import INSTRUCTIONS
from loom.cli import context as context_command
from loom.cli.shared.session_options import choose_tools
from loom.compile.policy import override_key
from loom.compile.request import COMPACTED_FIRST, NEXT_MESSAGE
from loom.config import load_config
from loom.content.media import size_label
from loom.errors import LoomError
from loom.prompt import ReceiptRow
from loom.providers.files import PENDING
from loom.providers.http import WIRES as ENCODERS
from loom.providers.media_body import MediaBody
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.sampling import sampling_of
from loom.testing import sample_pdf, sample_png
from providers.far_side import FarSide, Reply, Request, far_side, refusal

REFUSALS = {
    "tools": (400, {"error": {"message": "This model does not support tools.", "type": "invalid_request_error"}}),
    "images": (400, {"error": {"message": "image input is not supported by this model", "type": "invalid"}}),
    "poison": (400, {"error": {"message": "Could not process image", "type": "invalid_request_error"}}),
    "window": (400, {"error": {"message": "prompt is too long: 250000 tokens > 20000 maximum", "type": "invalid"}}),
    "bytes": (413, {"error": {"message": "request too large", "type": "request_too_large"}}),
}
SEEDS = (*range(16), 1039, 1058)
"""The last two have conversations that are summarized before their next message."""
DRY_RUN_SEEDS = range(100, 104)
SETTINGS = (
    'thinking = "high"',
    "top_p = 0.9",
    "seed = 7",
    'stop = ["END"]',
    'service_tier = "flex"',
    'cache = "1h"',
    'extra_body = { metadata = { team = "x" } }',
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"thinking": "low"},
    {"top_p": 0.5, "stop": ["a"]},
    {"thinking": "off", "seed": 1},
)


class World:
    """Two far models, a home, and what the far side received."""

    def __init__(self, home: Path, server: FarSide, dice: random.Random) -> None:
        self.home = home
        self.server = server
        self.dice = dice
        self.refused: list[str] = []

    def bodies(self) -> list[dict[str, Any]]:
        return [request.json for request in self.server.requests if is_question(request)]

    def uploads(self) -> int:
        return sum(is_upload(request) for request in self.server.requests)


def is_upload(request: Request) -> bool:
    """Whether bytes are stored at the platform, for a later request to refer to."""
    return request.method == "POST" and request.target.partition("?")[0].endswith(("/files", "/file-bytes"))


def kept_file(request: Request, number: int, url: str) -> Reply:
    """The answer of each platform's service for files; Gemini's takes two requests."""
    headers: dict[str, str] = {}
    if request.target.startswith("/upload/"):
        body: dict[str, Any] = {}
        headers["x-goog-upload-url"] = f"{url}/file-bytes"
    elif request.target.endswith("/file-bytes"):
        name = f"files/f{number}"
        body = {"file": {"name": name, "uri": f"{url}/v1beta/{name}", "state": "ACTIVE"}}
    else:
        body = {"id": f"file_{number}", "type": "file"}
    return Reply(body=json.dumps(body).encode(), content_type="application/json", headers=headers)


@asynccontextmanager
async def world(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[World]:
    dice = random.Random(seed)
    wires = dice.sample(WIRES, 2)
    found: list[World] = []

    def answer(request: Request) -> Reply:
        if is_upload(request) and found:
            return kept_file(request, found[0].uploads(), found[0].server.url)
        if not is_question(request):
            return refusal(404, {"error": "not found"})
        if found and found[0].refused:
            return refusal(*REFUSALS[found[0].refused.pop()])
        wire = next(wire for wire in wires if f"/{wire}/" in request.target)
        return speak(wire, f"answer {dice.randrange(1000)}")

    async with far_side(answer) as server:
        home = tmp_path / "home"
        home.mkdir()
        lines = ['model = "far0"', "[keys]"]
        lines += [f'{name} = "sk-far-away-0123"' for name in ("anthropic", "openai", "gemini")]
        for number, wire in enumerate(wires):
            platform, name = PLATFORMS[wire]
            url = server.url.rstrip("/") + f"/{wire}"
            base = url + ("/v1" if wire in ("openai_chat", "openai_responses") else "")
            lines += [f"[models.far{number}]", f'provider = "{platform}"', f'model = "{name}"', f'base_url = "{base}"']
            if dice.random() < 0.5:
                lines.append(f"temperature = {dice.choice((0.0, 0.5, 1.0))}")
            if dice.random() < 0.5:
                lines.append(f"max_tokens = {dice.choice((500, 2000))}")
            lines += dice.sample(SETTINGS, dice.randrange(0, 4))
        lines += [
            "[context]",
            f"full_turns = {dice.choice((1, 2))}",
            f"low_turns = {dice.choice((0, 1, 3))}",
            f'aging = "{dice.choice(("stepped", "stepped", "every-turn", "off"))}"',
        ]
        (home / "loom.toml").write_text("\n".join(lines))
        monkeypatch.setenv("LOOM_HOME", str(home))
        monkeypatch.setenv("LOOM_OFFLINE", "1")
        monkeypatch.chdir(tmp_path)
        found.append(World(home, server, dice))
        yield found[0]


def attachments(dice: random.Random) -> list[Any]:
    kinds: list[Any] = [
        sample_png(dice.randrange(600, 900), 500),
        sample_pdf("The timeout is 30 seconds."),
        "more words",
        noise_png(dice),
    ]
    return dice.sample(kinds, dice.randrange(0, 3))


def noise_png(dice: random.Random) -> bytes:
    """A picture that is large enough to be uploaded once instead of sent again and again."""
    file = io.BytesIO()
    Image.frombytes("RGB", (800, 600), dice.randbytes(800 * 600 * 3)).save(file, "PNG", compress_level=1)
    return file.getvalue()


async def converse(runtime: Runtime, there: World, tools: tuple[str, ...] | None) -> str:
    """A session with history: pictures that age, refusals that were learned, a switch, an override."""
    dice = there.dice
    session = await runtime.session(model="far0", tools=tools)
    for turn in range(dice.randrange(1, 6)):
        attached = attachments(dice)
        if dice.random() < 0.4:
            is_picture = any(isinstance(it, bytes) for it in attached)
            there.refused.append("poison" if is_picture and dice.random() < 0.7 else dice.choice(list(REFUSALS)))
        with contextlib.suppress(LoomError):  # a turn that failed is part of the history, too
            await session.send(f"question {turn}", *attached)
    await session.set_options(dice.choice(OPTIONS))
    if dice.random() < 0.5:
        await session.use("far1")
    rows = [row for receipt in await session.plan() for row in receipt.rows if row.kind == "image"]
    if rows and dice.random() < 0.5:
        snapshot = await session.snapshot()
        row = dice.choice(rows)
        key = override_key(snapshot.path[row.message].id, row.block, row.inner)
        await runtime.stores.sessions.update(session.id, overrides={key: dice.choice(("full", "text", "omitted"))})
    return session.id


async def body_of(prompt: Any, source: Any) -> dict[str, Any]:
    encoded = ENCODERS[prompt.model.wire].encode(prompt)
    return json.loads(b"".join([piece async for piece in MediaBody(encoded, source)]))


@contextlib.contextmanager
def standard_output() -> Iterator[io.BytesIO]:
    """What a command prints, in whatever way it prints it."""
    raw = io.BytesIO()
    text = io.TextIOWrapper(raw, write_through=True)
    with contextlib.redirect_stdout(text):
        yield raw
    text.detach()


def with_message(body: Any, text: str) -> Any:
    """The body with the coming message in the place that was kept for it."""
    return json.loads(json.dumps(body).replace(json.dumps(NEXT_MESSAGE)[1:-1], json.dumps(text)[1:-1]))


def comparable(row: ReceiptRow | dict[str, Any]) -> tuple[Any, ...]:
    values = row if isinstance(row, dict) else {name: getattr(row, name) for name in ReceiptRow.__struct_fields__}
    return tuple(
        values.get(name) or "" for name in ("message", "block", "inner", "kind", "rendition", "digest", "reason")
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_every_interface_shows_is_the_body_that_is_sent(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session, asked three times: by the library, by the command and by the daemon. Each shows it just before."""
    async with world(tmp_path, seed, monkeypatch) as there, Runtime.open(load_config(), tools="all") as runtime:
        tools = await choose_tools(runtime, (), default="safe")
        session_id = await converse(runtime, there, tools)
        session = await runtime.session(session_id, tools=tools)
        await check_library(runtime, session, there)
        await check_command(session, there)
        async with serving(runtime) as daemon:
            await check_daemon(daemon, session, there)


async def check_library(runtime: Runtime, session: LocalSession, there: World) -> None:
    """`Session.plan` and `next_request`, with attachments and options of the coming message."""
    content = ("what is next?", *attachments(there.dice))
    options = there.dice.choice(OPTIONS)
    planned = await session.previews.next_request(content=content, sampling=sampling_of(options))
    shown = await body_of(planned.prompt, runtime.stores.renditions)
    (receipt,) = await session.plan(content=content)
    before = len(there.bodies())
    reply = await session.send(*content, options=options)
    sent = there.bodies()[before]
    assert (COMPACTED_FIRST in receipt.notices) == (COMPACTED_FIRST in planned.receipt.notices)
    if is_announced_summary(sent, receipt.notices):
        return
    assert with_files(shown, sent) == sent
    for found in (planned.receipt, receipt):
        assert list(map(comparable, found.rows)) == list(map(comparable, reply.receipt.rows))
    assert reply.receipt.unsent_options == planned.receipt.unsent_options
    again = await session.previews.last_request()
    assert again is not None
    assert with_files(await body_of(again.prompt, runtime.stores.renditions), sent) == sent


async def check_command(session: LocalSession, there: World) -> None:
    """`loom wire --full` and `loom context --json`."""
    model = (await session.snapshot()).model
    with standard_output() as printed:
        await context_command._wire([session.id], model, full=True)
    wire = json.loads(printed.getvalue())
    with standard_output() as printed:
        await context_command._context(session.id, "", as_json=True, reasons=False, wishes={})
    context = json.loads(printed.getvalue())
    shown, rows = wire["request"], context["rows"]
    before = len(there.bodies())
    reply = await session.send("and then?")
    sent = there.bodies()[before]
    assert (COMPACTED_FIRST in context["notices"]) == (COMPACTED_FIRST in wire["receipt"]["notices"])
    if is_announced_summary(sent, context["notices"]):
        return
    assert with_files(with_message(shown, "and then?"), sent) == sent
    assert list(map(comparable, rows)) == list(map(comparable, reply.receipt.rows))[: len(rows)]


async def check_daemon(daemon: Served, session: LocalSession, there: World) -> None:
    """`GET …/wire`, and `POST …/plan`, which the inspector and the model switcher show."""
    model = (await session.snapshot()).model
    plan = {"models": ["far0", "far1"], "text": "and at last?"}
    async with httpx2.AsyncClient(base_url=daemon.url, headers={"authorization": f"Bearer {TOKEN}"}) as http:
        at = f"/v1/sessions/{session.id}"
        wire = (await http.get(f"{at}/wire", params={"model": model})).json()
        planned = (await http.post(f"{at}/plan", json=plan)).json()
        before = len(there.bodies())
        async with daemon.client() as client:
            await (await client.session(session.id)).send("and at last?")
        sent = there.bodies()[before]
        resent = (await http.post(f"{at}/plan", json={"models": [model], "sent": True})).json()
    assert (COMPACTED_FIRST in planned["models"][model]["notices"]) == (COMPACTED_FIRST in wire["notices"])
    if is_announced_summary(sent, wire["notices"]):
        return
    assert with_media(with_files(with_message(wire["request"], "and at last?"), sent), sent) == sent
    assert cells(planned, model) == cells(resent, model)


def is_announced_summary(sent: dict[str, Any], notices: Sequence[str]) -> bool:
    """Whether the body asks for a summary of the conversation. What was shown is then sent later, and said so."""
    is_summary = INSTRUCTIONS in json.dumps(sent)
    assert is_summary == (COMPACTED_FIRST in notices)
    return is_summary


def cells(plan: dict[str, Any], model: str) -> list[tuple[Any, ...]]:
    """The rows of a plan for one model."""
    found: list[tuple[Any, ...]] = []
    for row in plan["rows"]:
        cell = row["by_model"].get(model, {})
        place = tuple(row[name] for name in ("message", "block", "inner", "role", "kind", "digest"))
        found.append((*place, *(cell.get(name) for name in ("rendition", "reason"))))
    return found


@pytest.mark.parametrize("seed", DRY_RUN_SEEDS)
async def test_what_a_dry_run_prints_is_the_body_that_is_sent(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, seed, monkeypatch) as there, Runtime.open(load_config(), tools="all") as runtime:
        tools = await choose_tools(runtime, (), default="safe")
        session = await runtime.session(await converse(runtime, there, tools), tools=tools)
        picture = tmp_path / "next.png"
        picture.write_bytes(sample_png(700, 500))
        command = (sys.executable, "-m", "loom.cli.main", "-r", session.id, "--dry-run", "--full")
        process = await asyncio.create_subprocess_exec(
            *command, "what is next?", "-a", str(picture), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        printed, said = await process.communicate()
        assert process.returncode == 0, said
        before = len(there.bodies())
        await session.send(picture, "what is next?")  # the command puts files before the words
        sent = there.bodies()[before]
        if not is_announced_summary(sent, [COMPACTED_FIRST] if COMPACTED_FIRST in said.decode() else []):
            assert with_files(json.loads(printed)["request"], sent) == sent


def with_files(shown: Any, sent: Any) -> Any:
    """What is shown, with the ids of files that were uploaded only when the request was sent, in the places that were
    kept for them."""
    if shown == PENDING and isinstance(sent, str):
        return sent
    if isinstance(shown, dict) and isinstance(sent, dict):
        return {key: with_files(value, sent.get(key)) for key, value in shown.items()}
    if isinstance(shown, list) and isinstance(sent, list) and len(shown) == len(sent):
        return [with_files(one, two) for one, two in zip(shown, sent, strict=True)]
    return shown


_ELIDED = re.compile(r"(.*)<sha256:[0-9a-f]{64} ([^<>]+)>", re.DOTALL)


def with_media(shown: Any, sent: Any) -> Any:
    """What is shown, with the media of the request that was sent where it says their size."""
    match shown, sent:
        case str(), str():
            elided = _ELIDED.fullmatch(shown)
            if elided is None or not sent.startswith(elided[1]):
                return shown
            size = len(base64.b64decode(sent.removeprefix(elided[1]), validate=True))
            return sent if size_label(size) == elided[2] else shown
        case dict(), dict():
            return {key: with_media(value, sent.get(key)) for key, value in shown.items()}
        case list(), list() if len(shown) == len(sent):
            return [with_media(one, two) for one, two in zip(shown, sent, strict=True)]
        case _:
            return shown
