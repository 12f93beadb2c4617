"""How a turn begins, and what is kept of it so that it can be ended or taken up again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loom.agent.approvals import OpenApproval
from loom.content.messages import Message
from loom.context.policy import Placed
from loom.models import Usage
from loom.session import Queued


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn begins with: words that are new, words that waited, another answer to what was said (`node`), or,
    a wish for a summary, or, with none of these, the calls of a turn that was cut off while it waited for approvals."""

    message: Message | None = None
    queued: Queued | None = None
    node: str = ""
    model: str = ""
    parent: str = ""
    mentioned: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    compacts: bool = False

    @property
    def is_another_answer(self) -> bool:
        return self.message is None and (self.queued is None or self.queued.message is None)

    @property
    def is_resumed(self) -> bool:
        return self.message is None and self.queued is None and not (self.node or self.compacts)


class CutTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a running turn, and so of one whose process died."""

    turn: str = ""
    model: str = ""
    tools: list[str] | None = None
    """The tools that it may call; None means all that there are."""
    approvals: dict[str, OpenApproval] = {}
    usage: Usage = Usage()
    steps: int = 0
    seconds: float = 0.0
    """What it had taken when its approvals were asked for."""

    def waiting_calls(self, path: Sequence[Placed]) -> dict[str, str]:
        """The calls at the end of the path that have not begun because nobody has answered, and their approvals."""
        calls = {call.id for call in path[-1].message.calls} if path else set[str]()
        return {found.call: name for name, found in self.approvals.items() if found.is_gate and found.call in calls}
