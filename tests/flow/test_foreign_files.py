"""`loom wire FILE -m MODEL`: whatever another program wrote, the request is one that the platform takes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cli.loom_command import Loom
from flow.foreign_files import FILES, PNG, b64, damaged
from flow.judge import problems, shape_problems
from flow.test_brick_bytes import base64_fields
from loom.cli.shared.plan import compile_source
from loom.formats.sniff import sniff
from loom.providers.catalog import model

TARGETS = {
    "anthropic/claude-opus-5": "anthropic",
    "bedrock/anthropic.claude-sonnet-4-5": "bedrock-anthropic",
    "openai/gpt-5.5": "openai-responses",
    "openai-chat/gpt-5.5": "openai-chat",
    "gemini/gemini-4-argon": "gemini",
    "ollama/llava": "ollama",
    "deepseek/deepseek-v4-pro": "deepseek",
    "mistral/mistral-large-latest": "mistral",
    "compatible/qwen3-vl": "openai-compatible",
}
MUTANTS = 8


@pytest.mark.parametrize("reference", TARGETS)
def test_the_command_prints_a_request_that_the_sdk_would_take(reference: str, tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    target = model(reference)
    for name, conversation in FILES.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(conversation))
        ran = loom("wire", str(file), "-m", reference, "--full")
        assert ran.code == 0, f"{name}: {ran.err}"
        printed = json.loads(ran.out)
        assert printed.keys() == {"file", "provider", "model", "receipt", "request"}
        assert printed["file"] == str(file)
        assert all(row.get("reason") for row in printed["receipt"]["rows"] if row.get("rendition") != "full")
        assert (printed["provider"], printed["model"]) == (TARGETS[reference], target.name)
        assert shape_problems(target, printed["request"]) == [], name
        for declared, data in base64_fields(printed["request"]):
            assert not declared or sniff(data).media_type == declared, f"{name}: the label lies"
    short = loom("wire", str(tmp_path / "anthropic.json"), "-m", reference).out
    assert b64(PNG)[:40] not in short
    assert ("<sha256:" in short) == target.capabilities.vision, "media are digests and sizes"
    (told,) = loom("context", str(tmp_path / "anthropic.json"), "-m", reference, "--json").rows
    assert told["rows"]
    assert all(row.get("reason") for row in told["rows"] if row["rendition"] != "full")


@pytest.mark.parametrize("name", FILES)
async def test_a_file_in_any_style_is_taken_by_everybody(name: str, tmp_path: Path) -> None:
    await judge(FILES[name], tmp_path / "file.json")


@pytest.mark.parametrize("seed", range(MUTANTS))
@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "ollama"])
async def test_a_damaged_file_is_taken_too(name: str, seed: int, tmp_path: Path) -> None:
    await judge(damaged(FILES[name], Random(f"{name} {seed}")), tmp_path / "file.json")


async def judge(conversation: Any, file: Path) -> None:
    await asyncio.to_thread(file.write_text, json.dumps(conversation))
    async with compile_source(str(file)) as found:
        for reference in TARGETS:
            prepared = (await found.compile(model(reference))).prepared
            assert problems(prepared) == [], reference
            assert all(row.reason for row in prepared.receipt.rows if row.rendition != "full")
