"""The sessions of any messages are those that contain them, in whatever order and number they are asked for."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from loom.content.messages import assistant, user
from loom.store.database import Database, Transaction
from loom.store.message_sessions import MessageSessions
from loom.store.search import search_messages
from loom.store.sessions import Sessions

_ENDS = "SELECT key, head_key FROM session UNION SELECT session_key, node_key FROM tip"


async def grow(database: Database, chance: random.Random) -> None:
    """Write conversations that interleave, branch, share messages and are deleted, so that keys have gaps."""
    sessions = Sessions(database)
    ids = [(await sessions.create(title=f"talk {at}")).id for at in range(4)]
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for number in range(60):
        session = chance.choice(ids)
        texts = [f"{number} {at} {'heron' if chance.random() < 0.8 else 'gull'}" for at in range(chance.randint(1, 40))]
        added = await sessions.append_to_head(session, [user(text) for text in texts])
        nodes[session] += [row.id for row in added]
        deed = chance.random()
        if deed < 0.25:
            ids.append((await sessions.fork(session, chance.choice(nodes[session]))).id)
            await sessions.append_to_head(ids[-1], [assistant(f"heron {number}")])
        elif deed < 0.4:  # a branch that was left
            await sessions.move_head(session, nodes[session][-1], chance.choice(nodes[session]))
            nodes[session] = [row.id for row in await sessions.append_to_head(session, [user(f"heron again {number}")])]
        elif deed < 0.45 and len(ids) > 3:
            await sessions.delete(ids.pop(ids.index(session)))


def sessions_of_all(tx: Transaction) -> dict[int, set[int]]:
    """Walk up from every end, message by message."""
    parents: dict[int, int | None] = dict(tx.execute("SELECT key, parent_key FROM node"))
    found: dict[int, set[int]] = {key: set() for key in parents}
    for session, end in tx.execute(_ENDS):
        at: int | None = end
        while at is not None:
            found[at].add(session)
            at = parents[at]
    return found


def batches(keys: list[int], chance: random.Random) -> list[list[int]]:
    """Return the keys in parts, as searches ask for them: newest first, few at first, or in any order."""
    if chance.random() < 0.3:
        chance.shuffle(keys)
    else:
        keys.sort(reverse=True)
    parts: list[list[int]] = []
    while keys:
        size = chance.choice((1, 8, 32, 128, 512))
        parts.append(keys[:size])
        del keys[:size]
    return parts


@pytest.mark.parametrize("seed", range(6))
async def test_messages_are_found_in_the_sessions_that_contain_them(database: Database, seed: int):
    chance = random.Random(seed)
    await grow(database, chance)
    expected = await database.read(sessions_of_all)
    for share in (1.0, 0.9, 0.5, 0.1, 0.02):
        asked = batches([key for key in expected if chance.random() < share], chance)

        def find(tx: Transaction, asked: list[list[int]] = asked) -> list[dict[int, frozenset[int]]]:
            sessions = MessageSessions(tx)
            return [sessions.find(keys) for keys in asked]

        for keys, found in zip(asked, await database.read(find), strict=True):
            assert list(found) == keys
            assert found == {key: expected[key] for key in keys}


@pytest.mark.parametrize("seed", range(6))
async def test_a_frequent_word_is_found_in_every_session_that_contains_it(database: Database, seed: int):
    await grow(database, random.Random(seed))

    def expect(tx: Transaction) -> dict[str, set[str]]:
        ids = dict(tx.execute("SELECT key, id FROM session"))
        messages = {key: (node, text) for key, node, text in tx.execute("SELECT key, id, message FROM node")}
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key, owners in sorted(sessions_of_all(tx).items(), reverse=True):
            node, text = messages[key]
            for owner in owners if "heron" in text else ():
                found[ids[owner]].append(node)
        return {session: set(nodes[:3]) for session, nodes in found.items()}

    hits: defaultdict[str, set[str]] = defaultdict(set)
    for hit in await search_messages(database, "heron", limit=1000, per_session=3):
        hits[hit.session].add(hit.node)

    assert hits == await database.read(expect)
