"""What an error says of itself."""

from __future__ import annotations

import pytest

from loom.errors import LoomError


@pytest.mark.parametrize(
    ("message", "hint", "said"),
    [
        ("there is no file nope.pdf", "Check the path.", "there is no file nope.pdf. Check the path."),
        ("There is no file nope.pdf.", "Check the path.", "There is no file nope.pdf. Check the path."),
        ("Really?", "Say yes.", "Really? Say yes."),
        ("there is no file nope.pdf", "", "there is no file nope.pdf"),
    ],
)
def test_the_sentence_ends_before_the_next_step_begins(message: str, hint: str, said: str) -> None:
    error = LoomError(message, hint=hint)
    assert (str(error), error.message) == (said, message)
