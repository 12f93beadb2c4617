"""Data exports of other products come in with their pictures, branches and times; damaged ones as far as they go."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from importers import product_samples as samples
from loom.content.blocks import ThinkingBlock
from loom.content.media import digest_of
from loom.content.messages import media_blocks
from loom.errors import LoomError
from loom.message_types import History, ImportReport
from loom.runtime import Runtime
from loom.runtime.imports import import_file
from loom.testing import memory_runtime


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with memory_runtime() as made:
        yield made


async def history_of(runtime: Runtime, report: ImportReport, at: int = 0) -> History:
    return await (await runtime.library.open(report.sessions[at].session)).history()


async def labels(runtime: Runtime, report: ImportReport, at: int = 0) -> list[tuple[str, str]]:
    found = await (await runtime.library.open(report.sessions[at].session)).tree()
    return [(node.role, node.label) for node in found.nodes]


def media_in(history: History) -> list[str]:
    return [block.media.digest for message in history.messages for block in media_blocks(message.blocks)]


async def test_chatgpt_with_pictures_branches_calls_and_times(runtime: Runtime):
    report = await import_file(runtime, samples.chatgpt(), "export.zip")
    (made,) = report.sessions
    history = await history_of(runtime, report)

    assert (made.kind, made.title, made.media) == ("ChatGPT", "Blue picture", 3)
    assert history.system == "Answer in English."
    assert {digest_of(samples.PHOTO), digest_of(samples.DRAWN)} <= set(media_in(history))
    texts = [text for message in history.messages for block in message.blocks if (text := getattr(block, "text", ""))]
    assert texts == ["what is in this picture?", "Something blue.", "draw it again", "Here it is."]
    assert ("assistant", "A blue rectangle.") in await labels(runtime, report)
    assert [message.role for message in history.messages] == [
        "user", "assistant", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert history.messages[0].created_at == 1700000001.5 and history.messages[1].model == "gpt-4o-mini"
    info = await (await runtime.library.open(made.session)).info()
    assert (info.created_at, info.updated_at) == (1700000000.0, 1700000008.0)
    assert not made.notices, made.notices


async def test_an_unpacked_export_is_read_by_its_folder_and_by_its_file(runtime: Runtime, tmp_path: Path):
    zipfile.ZipFile(io.BytesIO(samples.chatgpt())).extractall(tmp_path)
    by_folder = await import_file(runtime, tmp_path)
    by_file = await import_file(runtime, tmp_path / "conversations.json", roots=(tmp_path,))
    assert by_folder.sessions[0].media == 3
    assert [found.session for found in by_file.sessions] == [by_folder.sessions[0].session]


async def test_claude_ai_with_attachments_thinking_calls_and_branches(runtime: Runtime):
    report = await import_file(runtime, samples.claude_ai(), "claude.zip")
    (made,) = report.sessions
    history = await history_of(runtime, report)

    assert (made.kind, made.title) == ("claude.ai", "Notes")
    assert digest_of(samples.PHOTO) in media_in(history)
    assert any("gone.png" in notice for notice in made.notices)
    assert any(getattr(block, "text", "") == "[file: notes.txt]\nthe notes" for block in history.messages[0].blocks)
    found = await labels(runtime, report)
    assert ("assistant", "They are brief.") in found and ("assistant", "They are short.") in found
    assert any(role == "tool" for role, _ in found)
    assert history.messages[0].created_at == 1767323046.0


async def test_open_webui_with_data_urls_thinking_and_two_models(runtime: Runtime):
    report = await import_file(runtime, samples.open_webui(), "chats.json")
    (made,) = report.sessions
    history = await history_of(runtime, report)
    info = await (await runtime.library.open(made.session)).info()

    assert (made.kind, made.title, history.system) == ("Open WebUI", "Side by side", "Be brief.")
    assert media_in(history) == [digest_of(samples.PHOTO)]
    assert history.messages[-1].model == "qwen3:8b"
    stored = await runtime.stores.sessions.get(made.session)
    assert stored.pinned and stored.tags == ("pictures",) and info.updated_at == 1700000009
    tree = await runtime.stores.forest.tree(made.session)
    blocks = [block for node in tree if node.message for block in node.message.blocks]
    thinking = [block for block in blocks if isinstance(block, ThinkingBlock)]
    assert [block.text for block in thinking] == ["hm"]


@pytest.mark.parametrize("recursive", [False, True])
async def test_librechat_flat_and_as_a_tree(runtime: Runtime, tmp_path: Path, recursive: bool):
    (tmp_path / "blue.json").write_bytes(samples.librechat(recursive=recursive))
    (tmp_path / "f1__photo.png").write_bytes(samples.PHOTO)
    report = await import_file(runtime, tmp_path / "blue.json", roots=(tmp_path,))
    (made,) = report.sessions
    history = await history_of(runtime, report)

    assert (made.kind, history.system, media_in(history)) == ("LibreChat", "Be brief.", [digest_of(samples.PHOTO)])
    found = await labels(runtime, report)
    assert ("assistant", "A rectangle.") in found and ("assistant", "Blue.") in found
    assert history.messages[0].created_at == 1767323045.0


async def test_openai_jsonl_is_one_conversation_a_line_and_a_preference_is_a_branch(runtime: Runtime):
    report = await import_file(runtime, samples.jsonl(), "samples.jsonl")

    assert [found.messages for found in report.sessions] == [2, 3, 1]
    assert (await history_of(runtime, report)).system == "Be brief."
    assert media_in(await history_of(runtime, report)) == [digest_of(samples.PHOTO)]
    preferred = await history_of(runtime, report, 1)
    assert [block.text for block in preferred.messages[-1].blocks if hasattr(block, "text")] == ["Hello!"]
    assert ("assistant", "What?") in await labels(runtime, report, 1)


EXPORTS: dict[str, bytes] = {
    "chatgpt.zip": samples.chatgpt(),
    "claude.zip": samples.claude_ai(),
    "webui.json": samples.open_webui(),
    "librechat.json": samples.librechat(),
    "samples.jsonl": samples.jsonl(),
}


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.8, 0.97])
async def test_a_cut_export_gives_a_sentence_or_what_was_whole_and_says_so(runtime: Runtime, name: str, share: float):
    data = EXPORTS[name]
    report: ImportReport | LoomError
    try:
        report = await import_file(runtime, data[: int(len(data) * share)], name)
    except LoomError as error:
        report = error
    if isinstance(report, LoomError):
        assert report.message.endswith(".") and report.hint
    else:
        assert report.sessions and (report.notices or any(found.notices for found in report.sessions))


async def test_conversations_that_cannot_be_read_do_not_hide_the_others(runtime: Runtime):
    broken: Any = [7, {"mapping": {"a": 5, "b": {"message": "x"}}}, samples.chatgpt_conversation(), {"title": "odd"}]
    report = await import_file(runtime, json.dumps(broken).encode(), "conversations.json")
    assert [found.title for found in report.sessions] == ["Blue picture"]
    assert any("skipped" in notice for notice in report.notices)
