"""`-x` and `--xl`: the code of an answer without the words around it."""

from __future__ import annotations

import re
from typing import Final

from loom.cli.renderers import TextRenderer, TurnOutcome
from loom.cli.terminal import print_line, safe_text

_FENCE: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<code>.*?)^[ \t]*(?P=fence)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def code_of(text: str, *, last: bool) -> str | None:
    """What stands in the first or the last fence; None where there is none. A fence that was never closed counts."""
    found = [match["code"] for match in _FENCE.finditer(text)]
    if found:
        return found[-1 if last else 0]
    _, opened, rest = text.partition("```")
    return rest.partition("\n")[2] if opened and "\n" in rest else None


class CodeRenderer(TextRenderer):
    """Says nothing while it streams; at the end, the code alone."""

    def __init__(self, *, last: bool, shows_reasoning: bool = True) -> None:
        super().__init__(streams=False, shows_reasoning=shows_reasoning)
        self._last = last

    async def finish(self, outcome: TurnOutcome) -> None:
        self._whole.clear()
        await super().finish(outcome)
        code = code_of(outcome.text, last=self._last)
        if code is None and outcome.text:
            print_line("the answer has no code block; printing all of it")
        self.write(safe_text(outcome.text if code is None else code))
        self.end_line()
