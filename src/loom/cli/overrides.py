"""What a person chooses for single blocks: shown whole whatever their age, hidden, or left to the policy again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from loom.cli.plan import CompileSource, compile_session
from loom.cli.session_lookup import find_session, last_session
from loom.compile.policy import Override, override_key
from loom.errors import ConfigError
from loom.prompt import ReceiptRow
from loom.runtime import Runtime

_CHOOSABLE: Final = ("text", "image", "document", "audio")


async def choose_renditions(wanted: str, wishes: Mapping[str, Override | None]) -> str:
    """Keep these wishes, by the key or the name of a block, with a session; None leaves it to the policy again.

    Gives the session's id: its number among all changes by this."""
    async with Runtime.open() as runtime:
        stored = await (find_session(runtime, wanted) if wanted else last_session(runtime, here=True))
        found = await compile_session(runtime, stored)
        if not found.path:
            raise ConfigError("The conversation is empty.")
        rows = (await found.compile(runtime.model(stored.model))).receipt.rows
        changes = {override_name(found, _row(rows, name)): wish for name, wish in wishes.items()}
        kept = {key: wish for key, wish in {**stored.overrides, **changes}.items() if wish is not None}
        await runtime.sessions.update(stored.id, rev=stored.rev, overrides=kept)
    return stored.id


def override_name(found: CompileSource, row: ReceiptRow) -> str:
    """The name of a block among the session's overrides; any number of branches may share it."""
    return override_key(found.path[row.message].id, row.block, row.inner)


def key_of(row: ReceiptRow) -> str:
    """The place of a block as people count: 3 for the first of the third message, 3.2 for the one behind it."""
    if row.inner is not None:
        return f"{row.message + 1}.{row.block + 1}.{row.inner + 1}"
    return f"{row.message + 1}.{row.block + 1}" if row.block else str(row.message + 1)


def _row(rows: Sequence[ReceiptRow], name: str) -> ReceiptRow:
    files = [row for row in rows if row.digest and row.label.startswith(f"{name},")]
    found = [row for row in rows if key_of(row) == name] or files
    if not found:
        raise ConfigError(f"No block matches {name!r}.", hint="Use the number or the file name: loom context.")
    if len(found) > 1:
        keys = ", ".join(key_of(row) for row in found)
        raise ConfigError(f"{name!r} matches {keys}.", hint="Use the number.")
    if found[0].kind not in _CHOOSABLE:
        raise ConfigError(
            f"{name} is {found[0].kind.replace('_', ' ')}, which goes along with what it belongs to.",
            hint="Choose a text, an image, a document or audio.",
        )
    return found[0]
