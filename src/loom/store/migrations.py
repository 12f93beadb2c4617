"""Migrations: numbered SQL files in `schema/`, applied in order, never backwards, each recorded with its checksum.

A store that a newer Loom has written, or whose migrations differ from ours, is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.errors import Corrupt, Newer
from loom.store.database import Row, Transaction

SELECT_APPLIED: Final = "SELECT version, name, checksum FROM migration ORDER BY version"

_SCHEMA = Path(__file__).parent / "schema"
_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    version: int
    name: str
    checksum: str
    sql: str

    def statements(self, words: Mapping[str, str]) -> tuple[str, ...]:
        """Return the statements for one database; `words` maps each placeholder to that database's SQL."""
        text = _COMMENT.sub("", self.sql)
        for placeholder, word in words.items():
            text = text.replace(f"{{{placeholder}}}", word)
        return tuple(part.strip() for part in _STATEMENT_END.split(text) if part.strip())


def known_migrations() -> tuple[Migration, ...]:
    found: list[Migration] = []
    for file in _SCHEMA.iterdir():
        if match := _FILE_NAME.fullmatch(file.name):
            data = file.read_bytes()
            found.append(Migration(int(match[1]), match[2], hashlib.sha256(data).hexdigest(), data.decode()))
    return tuple(sorted(found, key=lambda migration: migration.version))


def pending(applied: Sequence[Row], known: Sequence[Migration], label: str) -> tuple[Migration, ...]:
    """Return the migrations that a store with `applied` still needs. Raise `Newer` if a newer Loom wrote it, `Corrupt`
    if one of its migrations differs from ours."""
    by_version = {migration.version: migration for migration in known}
    for version, name, checksum in applied:
        if version not in by_version:
            raise Newer(
                f"{label} was written by a newer Loom (schema {version}, {name}; this one has {known[-1].version}).",
                hint="Upgrade Loom, or point it at another store. Nothing was changed.",
            )
        if by_version[version].checksum != checksum:
            raise Corrupt(
                f"{label} has a schema {version} that differs from this Loom's.",
                hint="An unreleased build created it; open it with that build. Nothing was changed.",
            )
    done = {row[0] for row in applied}
    return tuple(migration for migration in known if migration.version not in done)


def apply_pending(tx: Transaction, words: Mapping[str, str], label: str) -> None:
    """Bring the schema up to date. The caller must hold the migration lock."""
    tx.execute(
        "CREATE TABLE IF NOT EXISTS migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
        " checksum TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL)"
    )
    for migration in pending(tx.execute(SELECT_APPLIED), known_migrations(), label):
        for statement in migration.statements(words):
            tx.execute(statement)
        tx.execute(
            "INSERT INTO migration (version, name, checksum, applied_at) VALUES (:version, :name, :checksum, :now)",
            {
                "version": migration.version,
                "name": migration.name,
                "checksum": migration.checksum,
                "now": time.time(),
            },
        )
