"""19, 46: nothing is fetched by looking, counting, planning, keeping or passing on; and nobody is called unasked."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from cli.loom_command import COMMAND, Loom
from flow.far_models import WIRES, far_model
from flow.traced import calls_out, watching
from loom import image
from loom.agent.foreign_conversations import read_foreign_conversation
from loom.content.blocks import ToolCall
from loom.runtime.export import FORMS, export_session
from loom.testing import sample_png
from loom.tools.base import tool
from providers.far_side import Reply, far_side
from tools.server import page, serving

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ["anthropic/claude-opus-5", "openai/gpt-5.5", "gemini/gemini-4-argon", "deepseek/deepseek-v4-pro"]


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a request, with the name that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, key)


def addresses(request: Any, host: str) -> list[tuple[str, str]]:
    """Where a request names the host outside of words: there the provider would go and fetch."""
    words = {"text", "content", "output", "result", "arguments", "input_text"}
    return [(key, text) for key, text in strings(request) if host in text and key not in words]


@pytest.mark.parametrize("wire", WIRES)
async def test_19_addresses_in_a_conversation_are_followed_by_nobody_on_any_wire(wire: str) -> None:
    with serving({"*": page(sample_png(), "image/png")}) as canary:
        host = f"127.0.0.1:{canary.port}"
        url = f"http://{host}/a.png"
        old = (
            f'[{{"role": "user", "content": [{{"type": "image_url", "image_url": {{"url": "{url}"}}}},'
            f' {{"type": "image", "source": {{"type": "url", "url": "{url}"}}}},'
            f' {{"type": "input_image", "image_url": "{url}"}}, {{"fileData": {{"fileUri": "{url}"}}}}]}},'
            f' {{"role": "assistant", "content": "![chart]({url})"}}]'
        ).encode()

        @tool
        def find() -> dict[str, Any]:
            """Name pictures."""
            return {"type": "image_url", "image_url": {"url": url}, "source": {"type": "url", "url": url}, "uri": url}

        async with far_model(
            wire, ToolCall("c1", "find"), f"Here: ![x]({url}) <img src='{url}'>", "Done.", tools=[find]
        ) as far:
            session = await far.runtime.session(model="far")
            told = await read_foreign_conversation(old, far.runtime.stores.media)
            await far.runtime.stores.sessions.append_to_head(session.id, told.messages)
            await session.send(f"compare ![a]({url}) with {url} and <img src='{url}'>")
            await session.send("and now?")
            await session.plan(["far", *ELSEWHERE])
            again = await far.runtime.session(session.id)
            assert url in str(await again.path())
            for form in FORMS:
                await export_session(far.runtime, await far.runtime.stores.sessions.get(session.id), form)

            assert len(far.requests) == 3
            for request in far.requests:
                assert host in str(request), "the words themselves are told"
                assert addresses(request, host) == []
        assert canary.connections == 0


@pytest.mark.parametrize("wire", WIRES)
async def test_19_a_picture_by_address_is_fetched_once_by_us_and_leaves_as_bytes(wire: str) -> None:
    picture = sample_png(40, 30)
    async with far_side(Reply(body=picture, content_type="image/png")) as shop, far_model(wire, "Blue.") as far:
        session = await far.runtime.session(model="far")
        await session.send("look", image(f"{shop.url}/logo.png"))
        await session.send("and again?")
        await session.plan(["far", *ELSEWHERE])
        await (await session.fork()).send("and elsewhere?")

        assert len(shop.requests) == 1
        for number, request in enumerate(far.requests):
            assert len(far.pictures(number)) == 1
            assert addresses(request, shop.url.removeprefix("http://")) == []


# Nobody is called ----------------------------------------------------------------------------------------------------


def watched(loom: Loom, trace: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*watching(trace), *command],
        cwd=loom.folder,
        env={**loom.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_watch_sees_who_calls_out(tmp_path: Path) -> None:
    """Otherwise silence would mean nothing: 192.0.2.1 is an address that belongs to nobody."""
    code = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('192.0.2.1', 9))"
    ran = watched(Loom(tmp_path), tmp_path / "trace", sys.executable, "-c", code)
    assert ran.returncode == 0, ran.stderr
    assert len(calls_out(tmp_path / "trace")) == 1


def test_46_a_first_run_calls_nobody(tmp_path: Path) -> None:
    """Without a key, without LOOM_OFFLINE, in a home that is new: servers of this machine may be looked for."""
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png())
    every = "import pkgutil, loom\nfor m in pkgutil.walk_packages(loom.__path__, 'loom.'):\n"
    commands = {
        "version": [*COMMAND, "--version"],
        "import": [sys.executable, "-c", every + "    if '__main__' not in m.name: __import__(m.name)"],
        "ask": [*COMMAND, "login.png", "what is this?"],
        "doctor": [*COMMAND, "doctor"],
    }
    told: dict[str, str] = {}
    for name, command in commands.items():
        ran = watched(loom, tmp_path / name, *command, LOOM_OFFLINE="", LOOM_MODEL="")
        assert ran.returncode == 0 or name == "doctor", (name, ran.stderr)
        assert calls_out(tmp_path / name) == [], name
        told[name] = ran.stdout
    assert "64×48" in told["ask"], "the built-in model answered"


# Licences ------------------------------------------------------------------------------------------------------------

PERMISSIVE = re.compile(
    r"\b(?:MIT(?:-CMU|-0)?|Apache(?:[- ]?(?:Software )?(?:License)?[- ,]*(?:Version )?2(?:\.0)?)?|BSD(?:-[23]-Clause)?"
    r"|ISC|PSF(?:-2\.0)?|Python Software Foundation|HPND|Unlicense|0BSD|Zlib|MPL-2\.0|Mozilla Public License 2\.0)\b"
)
IMPORTED: Final = {"textual-image"}
"""LGPL: used as it comes, by import, which asks nothing of programs that use it."""
COPYLEFT = re.compile(r"\b(?:[AL]?GPL|GNU|SSPL|BUSL|CC-BY-(?:SA|NC)|Affero)", re.IGNORECASE)


def needed(name: str, found: dict[str, Distribution]) -> None:
    """What a plain `pip install` of Loom brings along: itself, and all that these need in their turn."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        found[key] = distribution(name)
    except PackageNotFoundError:
        return  # for another system or an older Python
    for line in found[key].requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, found)


def licence_of(package: Distribution) -> str:
    """What it says about itself, in any of the three ways to say it."""
    facts = package.metadata
    classifiers = [line for line in facts.get_all("Classifier") or () if line.startswith("License ::")]
    expression = facts.get("License-Expression") or ""
    return expression or " ".join(classifiers) or (facts.get("License") or "")[:200]


def test_46_everything_that_comes_with_loom_is_free_for_all_uses() -> None:
    """By the names in pyproject.toml, because what is installed here may be of another day."""
    found: dict[str, Distribution] = {}
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        needed(Requirement(line).name, found)
    told = {name: licence_of(package) for name, package in found.items()}
    assert {"click", "starlette", "pypdfium2", "anyio"} <= set(told)
    others = {name: text for name, text in told.items() if name not in IMPORTED}
    assert {name: text for name, text in others.items() if COPYLEFT.search(text)} == {}
    assert {name: text for name, text in others.items() if not PERMISSIVE.search(text)} == {}
    assert all("Lesser" in told[name] or "LGPL" in told[name] for name in IMPORTED)


def test_46_every_package_in_the_web_client_is_listed_with_its_licence() -> None:
    maker = runpy.run_path(str(ROOT / "web" / "make.py"))
    maker["make"]()
    text = (maker["BUILT"] / "licences.txt").read_text()
    listed = dict(re.findall(r"^(@?[a-z][\w./-]*) \d[\w.-]* \((.+)\)$", text, re.MULTILINE))
    wanted = json.loads((ROOT / "web" / "package.json").read_text())["dependencies"]
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    assert set(wanted) <= set(listed)
    assert [name for name in listed if locked[f"node_modules/{name}"].get("dev")] == []
    assert {name: licence for name, licence in listed.items() if not PERMISSIVE.search(licence)} == {}
    assert "(see the package)" not in text, "each comes with the words of its licence"
    assert text.count("Permission ") + text.count("Redistribution ") >= len(listed)
