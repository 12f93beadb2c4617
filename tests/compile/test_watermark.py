"""Borders hold where they were drawn: not on another branch, and not for what is said later."""

from __future__ import annotations

from compile.world import all_known, said, screenshot
from loom.compile.policy import DetachedMessage, Placed, Policy, Watermark
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import TextBlock
from loom.content.messages import Message, assistant, user
from loom.providers.catalog import model

CLAUDE = model("anthropic/claude-opus-5")


def words(prepared: Prepared) -> str:
    blocks = (block for message in prepared.prompt.messages for block in message.blocks)
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def talked(turns: list[Message], policy: Policy) -> tuple[list[Message], Watermark]:
    """Every question is asked, and answered at length; gives the path and its watermark."""
    path: list[Message] = []
    mark = Watermark()
    for number, question in enumerate(turns):
        path.append(question)
        mark = prepare(said(*path), CLAUDE, watermark=mark, policy=policy, known=all_known()).watermark
        path.append(assistant(f"answer {number} " + "word " * 200))
    return path, mark


def branched(path: list[Message], *new: Message) -> list[Placed]:
    return [*said(*path), *(DetachedMessage(f"new {at}", message) for at, message in enumerate(new))]


def test_turns_that_a_budget_dropped_are_shown_on_a_short_branch() -> None:
    policy = Policy(max_tokens=6_000)
    path, mark = talked([user(f"turn {number} " + "word " * 200) for number in range(30)], policy)
    assert mark.dropped_before > 20

    prepared = prepare(branched(path[:6], user("edited")), CLAUDE, watermark=mark, policy=policy)

    assert "turn 0" in words(prepared)
    assert words(prepared).endswith("edited")
    assert "not shown" not in words(prepared)
    assert prepared.watermark.dropped_before == 0


def test_a_new_picture_on_a_branch_is_shown_whatever_has_aged_elsewhere() -> None:
    policy = Policy(aging="every-turn")
    path, mark = talked([user(f"turn {number}", screenshot(number)) for number in range(14)], policy)
    assert mark.low_before > 10

    new = screenshot(99)
    prepared = prepare(
        branched(path[:2], user("what is on this one?", new)), CLAUDE, watermark=mark, policy=policy, known=all_known()
    )

    assert new.media.digest in [ref.digest for ref in prepared.prompt.media()]
    assert [row.rendition for row in prepared.receipt.rows if row.kind == "image"] == ["full", "full"]


def test_what_has_aged_stays_so_on_a_branch_of_the_newest_turn() -> None:
    """What both have in common may be in the provider's cache."""
    policy = Policy(aging="every-turn")
    path, mark = talked([user(f"turn {number}", screenshot(number)) for number in range(14)], policy)
    again = prepare(
        branched(path[:26], user("turn 13, edited", screenshot(13))),
        CLAUDE,
        watermark=mark,
        policy=policy,
        known=all_known(),
    )
    assert again.watermark.low_before == mark.low_before
    assert again.watermark.text_before == mark.text_before


def test_the_same_path_goes_on_from_its_borders() -> None:
    policy = Policy(max_tokens=6_000)
    path, mark = talked([user(f"turn {number} " + "word " * 200) for number in range(30)], policy)
    prepared = prepare(said(*path, user("and now?")), CLAUDE, watermark=mark, policy=policy)
    assert prepared.watermark.dropped_before >= mark.dropped_before


def test_long_texts_of_an_early_turn_do_not_cut_those_of_a_later_one() -> None:
    policy = Policy(max_tokens=4_000)
    files = user(*[f"file {number}: " + "x y " * 5_000 for number in range(12)])
    question = "my question " + "abc " * 900
    path, mark = talked([files, *(user(f"short {number}") for number in range(2, 7))], policy)
    assert mark.text_cap

    prepared = prepare(said(*path, user(question)), CLAUDE, watermark=mark, policy=policy)

    assert question in words(prepared)
    assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens


def test_a_later_text_that_is_too_long_itself_is_cut_too() -> None:
    policy = Policy(max_tokens=4_000)
    long = user("file: " + "x y " * 20_000)
    path, mark = talked([long, user("short")], policy)
    prepared = prepare(said(*path, long), CLAUDE, watermark=mark, policy=policy)
    assert prepared.receipt.totals.tokens <= prepared.receipt.budgets.tokens
    assert prepared.watermark.capped_before == len(path) + 1
