"""Stores: all stores of a runtime, opened together. Interfaces use `Library` and `Session` instead."""

from __future__ import annotations

from collections.abc import Callable

from loom.compile.renditions import Renditions
from loom.config import Config
from loom.formats.audio import Transcriber
from loom.formats.renderer import FormatRenderer
from loom.runtime.calibrations import ModelCalibrations
from loom.runtime.event_log import EventLog
from loom.runtime.record import SessionStores
from loom.store.commands import Commands
from loom.store.database import Database
from loom.store.derived import Derived, DerivedCache
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.journal import Journal
from loom.store.leases import Leases
from loom.store.media import MediaStore
from loom.store.media_text import MediaTexts
from loom.store.model_facts import ModelFacts
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions


class Stores(SessionStores, frozen=True, kw_only=True):
    """The stores of sessions and media. Only the runtime, and commands that check or copy the stores, use it."""

    database: Database
    media: MediaStore
    derived: DerivedCache
    renditions: Renditions[Derived]


def open_stores(
    config: Config,
    database: Database,
    media: MediaStore,
    transcriber: Callable[[], Transcriber | None] = lambda: None,
    calibrations: ModelCalibrations | None = None,
) -> Stores:
    """Return the stores on an open database and a media store."""
    forest = Forest(database)
    derived = DerivedCache(media.place, max_bytes=config.media.derived_max_bytes)
    return Stores(
        sessions=Sessions(database),
        forest=forest,
        journal=Journal(database),
        events=EventLog(Events(database), forest),
        queue=MessageQueue(database),
        leases=Leases(database),
        requests=Commands(database),
        calibrations=calibrations or ModelCalibrations(ModelFacts(database)),
        database=database,
        media=media,
        derived=derived,
        renditions=Renditions(
            media, derived, FormatRenderer(config.media_limits(), transcriber), on_text=MediaTexts(database).save
        ),
    )
