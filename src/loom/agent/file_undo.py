"""Undo in a session: find the steps that changed files, and select those to revert."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from loom.agent.work_history import PathWork
from loom.errors import NotFound
from loom.work_types import ChangedStep, FileChange

UNDONE: Final = "undone"
"""The session setting that lists the nodes whose changes were undone."""


def changed_steps(work: PathWork, undone: Collection[str]) -> tuple[ChangedStep, ...]:
    """Return the steps of a path that changed files, oldest first."""
    return tuple(
        ChangedStep(step=number, node=node, changes=changes, is_undone=node in undone)
        for number, (node, changes) in enumerate(work.changes, 1)
    )


def steps_to_undo(steps: Sequence[ChangedStep], step: int | None) -> tuple[ChangedStep, ...]:
    """Return the last step that is not undone, or `step` and every later one. Raise `NotFound` if there is nothing to
    undo."""
    left = [found for found in steps if not found.is_undone]
    if step is not None and not any(found.step == step for found in steps):
        known = f"There are steps 1 to {len(steps)}." if steps else "No step of this session has changed a file."
        raise NotFound(f"Step {step} has not changed a file.", hint=known)
    chosen = left[-1:] if step is None else [found for found in left if found.step >= step]
    if not chosen:
        raise NotFound("Nothing to undo.", hint="Only changes by the file tools can be undone.")
    return tuple(chosen)


def changes_of(steps: Sequence[ChangedStep]) -> list[FileChange]:
    return [change for step in steps for change in step.changes]


def undone_steps(steps: Sequence[ChangedStep], left: Collection[str]) -> tuple[ChangedStep, ...]:
    """Return the steps that are undone completely: none of their files was `left` alone."""
    return tuple(step for step in steps if not any(change.path in left for change in step.changes))


def undo_text(sentences: Sequence[str]) -> str:
    """Return the message that informs the model of an undo."""
    return "[The user undid your changes to files]\n" + "\n".join(f"- {sentence}" for sentence in sentences)
