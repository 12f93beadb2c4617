"""Imports: store the conversations of a file as sessions. The command, the API and the web client all call this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.content.archive import ArchivedSession, SessionArchive
from loom.content.codec import decode_message
from loom.content.messages import media_of
from loom.errors import ConfigError, Unreadable
from loom.importers.request_body import RequestBody
from loom.message_types import ImportedSession, ImportReport
from loom.runtime.agents import AGENT, find_agent
from loom.runtime.export import LOCAL_SETTINGS
from loom.runtime.record import snapshot_of
from loom.runtime.transcripts import Transcript, TranscriptReader
from loom.sampling import stored_sampling
from loom.store.exchange import SessionExchange
from loom.store.session_rows import StoredSession
from loom.tools.number_text import count_text

if TYPE_CHECKING:
    from loom.runtime import Runtime

_SAY_SOMETHING: Final = "Use a conversation with at least one message."
_STATE: Final = ("overrides", "watermark", "quarantine", "settings")


async def import_file(
    runtime: Runtime, source: Path | bytes, name: str = "", *, roots: Sequence[Path] = ()
) -> ImportReport:
    """Store every conversation of a file as a session. Importing the same file twice changes nothing.

    Old blocks may refer to files inside the folders `roots`. Raise `LoomError` if there is nothing to import.
    """
    name = name or (source.name if isinstance(source, Path) else "The file")
    reader = TranscriptReader(runtime.stores.media, runtime.config.media_limits(), roots=roots)
    transcripts = await reader.read(source, name)
    empty = [found for found in transcripts if found.is_empty]
    notices = [notice for found in empty for notice in found.repairs]
    if len(empty) == len(transcripts):
        why = f" ({'; '.join(notices[:3])})" if notices else ""
        raise Unreadable(f"{name} contains no messages{why}.", name=name, hint=_SAY_SOMETHING)
    if empty:
        notices.append(f"{count_text(len(empty), 'conversation')} without messages skipped")
    stored = [await store_transcript(runtime, found) for found in transcripts if not found.is_empty]
    return ImportReport(tuple(stored), tuple(notices))


async def store_transcript(runtime: Runtime, found: Transcript) -> ImportedSession:
    """Store a conversation as a session. Messages that are already stored are shared; an existing session is found
    again."""
    if found.archive is None:
        return await _store_path(runtime, found)
    archive, notices = _without_local_settings(runtime, found.archive)
    written = await SessionExchange(runtime.stores.database, runtime.secrets.mask).write(
        archive, workspace=str(Path.cwd()), model=await runtime.models.default()
    )
    return ImportedSession(
        kind=found.kind,
        session=written.session.id,
        title=written.session.title,
        messages=written.messages,
        media=len(
            {
                media.digest
                for node in archive.nodes
                for media in (media_of(decode_message(bytes(node.message))) if node.parent is not None else ())
            }
        ),
        shared=written.shared,
        is_new=written.is_new,
        notices=(*found.repairs, *notices, *written.notices),
    )


async def _store_path(runtime: Runtime, found: Transcript) -> ImportedSession:
    """Store a conversation without branches, with its original forms if it was written for a provider."""
    stored = await runtime.library.import_messages(
        found.messages,
        title=found.title,
        system=found.system,
        workspace=_existing_folder(found.workspace),
        forms=found.forms,
        options=_session_options(found.request),
    )
    return ImportedSession(
        kind=found.kind,
        session=stored.session.id,
        title=stored.session.title,
        messages=len(found.messages),
        media=len({media.digest for message in found.messages for media in media_of(message)}),
        shared=stored.shared,
        is_new=stored.is_new,
        notices=found.repairs,
    )


def _session_options(request: RequestBody | None) -> dict[str, Any]:
    """Return the options of a request body that apply to a whole session: not the tool choice or the schema of one
    answer."""
    if request is None:
        return {}
    once = ("tool_choice", "tool_name", "output_schema")
    options: dict[str, Any] = msgspec.to_builtins(request.sampling)
    return {name: value for name, value in options.items() if name not in once}


def _without_local_settings(runtime: Runtime, archive: SessionArchive) -> tuple[SessionArchive, list[str]]:
    """Return the archive without settings that a file must not set, and without those that this Loom cannot read, so
    that the imported session can be opened."""
    notices: list[str] = []
    session = archive.session
    settings = {name: value for name, value in session.settings.items() if name not in LOCAL_SETTINGS}
    if len(settings) < len(session.settings):
        notices.append("permissions and settings of another machine left out")
    agent = settings.get(AGENT)
    try:
        if agent:
            find_agent(runtime.config, str(agent), Path.cwd())
    except ConfigError:
        notices.append(f"the agent {str(agent)[:80]!r} is not configured here; the session has none")
        del settings[AGENT]
    session = msgspec.structs.replace(session, settings=settings)
    for name in _STATE:
        if not _can_open(session, name):
            notices.append(f"the {name} of the session cannot be read and were left out")
            session = msgspec.structs.replace(session, **{name: {}})
    return msgspec.structs.replace(archive, session=session), notices


def _can_open(session: ArchivedSession, name: str) -> bool:
    """Return whether compiling can read one part of the state."""
    state: dict[str, Any] = {part: getattr(session, part) if part == name else {} for part in _STATE}
    stored = StoredSession(
        id="",
        title="",
        root_id="",
        head_id="",
        model="",
        workspace="",
        archived=False,
        last_seq=0,
        rev=1,
        created_at=0,
        updated_at=0,
        **state,
    )
    try:
        snapshot_of(stored, "", ())
        stored_sampling(state["settings"].get("options"))
    except (msgspec.ValidationError, TypeError, ValueError, AttributeError):
        return False
    return True


def _existing_folder(workspace: str) -> str:
    """Return the workspace of the conversation if it exists on this machine."""
    return workspace if workspace and Path(workspace).is_dir() else ""
