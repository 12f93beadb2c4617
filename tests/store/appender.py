"""A process that writes to a store until it is done, or killed. It prints what was acknowledged.

    appender.py crowd URL SESSION NAME COUNT      append COUNT messages of its own and COUNT that everybody appends
    appender.py zygote URL MEDIA SESSION          for each line on stdin, fork a child that appends for ever
    appender.py nursery FOLDER                    for each line on stdin, fork a child that makes new stores for ever

The zygote exists because importing takes longer than a child should live; each child opens the store by itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import NoReturn

from loom.content.blocks import ImageBlock
from loom.content.media import Media
from loom.content.messages import user
from loom.store.database import open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import open_media
from loom.store.sessions import Sessions

WRITERS = 4


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


async def crowd(url: str, session_id: str, name: str, count: int) -> None:
    database = await open_database(url)
    sessions, forest, events = Sessions(database), Forest(database), Events(database)
    own = await sessions.create(system="shared prompt", title=name)
    root = await forest.root("shared prompt")
    shared = root.id
    for number in range(count):
        (mine,), (ours,), (posted,), seq = await asyncio.gather(
            sessions.append_to_head(own.id, [user(f"{name} {number}")]),
            forest.append(shared, [user(f"everybody {number}")]),
            sessions.append_to_head(session_id, [user(f"post {name} {number}")]),
            events.append(session_id, [(name, b"%d" % number)]),
        )
        shared = ours.id
        say(mine.id, ours.id, posted.id, seq)
    await database.close()


async def append_for_ever(url: str, media_folder: str, session_id: str, life: str) -> NoReturn:
    database = await open_database(url)
    sessions, events, media = Sessions(database), Events(database), open_media(media_folder)

    async def writer(name: int) -> None:
        for number in range(1_000_000):
            data = f"{life} {name} {number} ".encode() * 50
            digest = await media.put(data)
            shown = ImageBlock(Media(digest=digest, media_type="image/png", size_bytes=len(data)))
            (node,) = await sessions.append_to_head(session_id, [user(f"{life}.{name}.{number}", shown)])
            seq = await events.append(session_id, [("said", node.id.encode().join((b'"', b'"')))])
            say("ack", node.id, digest, seq)

    await asyncio.gather(*(writer(name) for name in range(WRITERS)))
    raise AssertionError("a writer ended")


async def open_for_ever(folder: str, life: str) -> NoReturn:
    for number in range(1_000_000):
        url = f"{folder}/{life}/{number}.db"
        await (await open_database(url)).close()
        say("ack", url)
    raise AssertionError("there was room for a million stores")


def zygote(life_of: Callable[[str], Coroutine[None, None, NoReturn]]) -> None:
    import loom.store.local_blobs
    import loom.store.sqlite  # noqa: F401 - what the children need is loaded before they are born

    for life in sys.stdin:
        child = os.fork()
        if child == 0:
            say("born", os.getpid())
            asyncio.run(life_of(life.strip()))
        _, status = os.waitpid(child, 0)
        say("gone", status)


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "crowd":
        asyncio.run(crowd(rest[0], rest[1], rest[2], int(rest[3])))
    elif mode == "nursery":
        zygote(lambda life: open_for_ever(rest[0], life))
    else:
        zygote(lambda life: append_for_ever(rest[0], rest[1], rest[2], life))
