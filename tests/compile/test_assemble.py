"""What goes back with an assistant's words."""

from __future__ import annotations

from typing import Any

import pytest

from compile.world import report, said
from loom.compile.prepare import prepare
from loom.content.blocks import Citation, Opaque, TextBlock
from loom.content.messages import assistant, user
from loom.providers.catalog import model

CLAUDE = model("anthropic/claude-opus-5")


def cited(**data: Any) -> int:
    """How many citations go back behind two documents."""
    opaque = Opaque(provider="anthropic", model=CLAUDE.name, data={"type": "page_location", **data})
    answer = TextBlock("so", (Citation(quote="so", opaque=opaque),))
    prepared = prepare(said(user("a", report(1), report(2)), assistant(answer), user("b")), CLAUDE)
    (found,) = [block for block in prepared.prompt.messages[1].blocks if isinstance(block, TextBlock)]
    return len(found.citations)


@pytest.mark.parametrize("index", [0, 1])
def test_a_citation_goes_back_while_its_document_is_there(index: int) -> None:
    assert cited(document_index=index) == 1


def test_a_citation_that_counts_no_documents_goes_back() -> None:
    assert cited() == 1


@pytest.mark.parametrize("index", [2, -1, "0", None, True, 0.0, [0], {"0": 0}])
def test_a_citation_of_a_document_that_is_none_is_left_out_whatever_it_counts_in(index: Any) -> None:
    assert cited(document_index=index) == 0


RULE = TextBlock("[system] Be brief.", is_system=True)
WORDS = TextBlock("two")


@pytest.mark.parametrize(
    ("reference", "blocks", "roles"),
    [
        ("openai/gpt-5.5", (RULE, WORDS), ["user", "assistant", "system", "user"]),
        ("openai/gpt-5.5", (WORDS, RULE), ["user", "assistant", "user", "system"]),
        ("openai-chat/gpt-5.5", (RULE,), ["user", "assistant", "system"]),
        ("anthropic/claude-opus-5", (WORDS, RULE), ["user", "assistant", "user", "system"]),
        ("anthropic/claude-opus-5", (RULE, WORDS), ["user", "assistant", "user"]),
        ("anthropic/claude-opus-5", (RULE,), ["user", "assistant", "user"]),
        ("anthropic/claude-haiku-4-5", (WORDS, RULE), ["user", "assistant", "user"]),
        ("gemini/gemini-3.7-flash", (WORDS, RULE), ["user", "assistant", "user"]),
    ],
)
def test_a_system_message_stands_where_its_model_takes_it_and_is_marked_elsewhere(
    reference: str, blocks: tuple[TextBlock, ...], roles: list[str]
) -> None:
    prepared = prepare(said(user("one"), assistant("fine"), user(*blocks)), model(reference))
    messages = prepared.prompt.messages
    assert [message.role for message in messages] == roles
    words = [block.text for message in messages for block in message.blocks if isinstance(block, TextBlock)]
    assert ("Be brief." in words) == ("system" in roles)
    assert sorted(text.removeprefix("[system] ") for text in words) == sorted(
        ["one", "fine", *(block.text.removeprefix("[system] ") for block in blocks)]
    )
    is_told = any("system message" in row.detail for row in prepared.receipt.rows) or any(
        "system message" in notice for notice in prepared.receipt.notices
    )
    assert is_told == ("system" not in roles)
