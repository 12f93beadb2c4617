"""The loop of a turn: call the model, run its tool calls, and repeat until an answer makes none."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from loom.agent.steps import StepValue
from loom.agent.turn_answer import request_answer

if TYPE_CHECKING:
    from loom.agent.turn import Turn


async def run_steps(turn: Turn) -> None:
    """Run a turn from its start, or from its checkpoint, to its end.

    A step whose outcome is stored returns it at once, so the loop always counts from one, and an engine that records
    steps sees the same names again.
    """
    for step in count(1):
        answered = await turn.services.steps.run(f"answer-{step}", partial(answer_step, turn, step))
        if not answered.calls and not answered.continues:
            return
        await turn.services.steps.run(f"calls-{step}", partial(calls_step, turn, step))


async def answer_step(turn: Turn, step: int) -> StepValue:
    """Request an answer from the model and store it. An answer without calls ends the turn, unless the provider paused
    it or it does not match its schema."""
    if step <= turn.checkpoint.steps:
        return StepValue(continues=True)  # a turn that is still running continued after every stored step
    await turn.check_limits()
    return await request_answer(turn, step)


async def calls_step(turn: Turn, step: int) -> StepValue:
    """Run the calls of the last answer and store their results."""
    calls = turn.open_calls
    if step < turn.checkpoint.steps or not calls:
        return StepValue()
    return await turn.run_calls(calls)
