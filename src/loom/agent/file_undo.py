"""Undo in a session: find the steps that changed files, select those to revert, and restore their files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from loom.agent.ports import Completion, SessionRecord
from loom.agent.services import workspace_of
from loom.agent.work_history import PathWork, WorkHistory
from loom.compile.ports import MediaAccess
from loom.content.messages import user
from loom.errors import NotFound
from loom.events import MessageStored
from loom.session import NewNode, SessionChange
from loom.tools.undo import restore_files
from loom.work_types import ChangedStep, UndoReport

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


async def undo_steps(record: SessionRecord, work: WorkHistory, media: MediaAccess, step: int | None) -> UndoReport:
    """Undo the file changes of the last step that has any, or of `step` and all later ones, and inform the model.
    Requires the lease. A step with a file that was left alone stays open."""
    snapshot = await record.snapshot()
    undone: list[str] = list(snapshot.settings.get(UNDONE, ()))
    chosen = steps_to_undo(changed_steps(await work.read(snapshot.path), undone), step)
    changes = [change for found in chosen for change in found.changes]
    files = await restore_files(workspace_of(snapshot), changes, media.load)
    complete = [found for found in chosen if not any(change.path in files.left for change in found.changes)]
    if files.is_changed:
        summary = "\n".join(f"- {sentence}" for sentence in files.sentences)
        message = user(f"[The user undid your changes to files]\n{summary}")
        undone += [found.node for found in complete]

        def completion(nodes: tuple[str, ...]) -> Completion:
            return Completion(events=[MessageStored(node=nodes[0], message=message)], settings={UNDONE: undone})

        await record.commit(SessionChange(nodes=(NewNode(message=message, source="system"),)), completion)
    return UndoReport(steps=tuple(found.step for found in complete), files=files.sentences)
