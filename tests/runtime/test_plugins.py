"""Tools, providers and formats of packages: found by their entry points, used by name, and harmless when broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom.runtime.custom_provider import REGISTERED
from loom.runtime.plugins import installed_plugins, reload_plugins
from loom.testing import memory_runtime

MODULE = '''
from loom import Capabilities

def weather(city: str) -> str:
    """Say the weather."""
    return f"sunny in {city}"

class Loud:
    name = "loud"
    capabilities = Capabilities()

    async def stream(self, prompt):
        yield prompt.messages[-1].blocks[-1].text.upper()
'''
ENTRIES = """[loom.tools]
a_broken = sky_plugin:MISSING
weather = sky_plugin:weather

[loom.providers]
loud = sky_plugin:Loud
wrong = sky_plugin:weather

[loom.formats]
broken = sky_plugin:MISSING
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "sky_plugin.py").write_text(MODULE)
    info = tmp_path / "sky_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sky-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    reload_plugins()
    yield
    REGISTERED.pop("loud", None)
    sys.modules.pop("sky_plugin", None)
    monkeypatch.undo()
    reload_plugins()


@pytest.mark.usefixtures("package")
async def test_tools_and_providers_of_a_package_are_used_by_name() -> None:
    async with memory_runtime(tools=["weather", "read_file"]) as runtime:
        assert {"weather", "read_file"} <= set(runtime.toolbox.tools)
        session = await runtime.session(model="loud")
        assert (await session.send("hello")).text == "HELLO"
        assert "weather" in runtime.toolbox.built_in()


@pytest.mark.usefixtures("package")
def test_a_plugin_that_fails_is_listed_with_its_reason() -> None:
    listed = {(found.group, found.name): found for found in installed_plugins()}
    assert listed["loom.tools", "weather"].problem == ""
    assert listed["loom.tools", "weather"].package == "sky-plugin"
    assert "MISSING" in listed["loom.tools", "a_broken"].problem
    assert "no stream method" in listed["loom.providers", "wrong"].problem
    assert "MISSING" in listed["loom.formats", "broken"].problem


async def test_without_packages_nothing_is_loaded() -> None:
    reload_plugins()
    assert installed_plugins() == ()
