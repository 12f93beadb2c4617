"""The values of the routes that manage a daemon: settings, model servers, users."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.api_types import Name

SettingValue: TypeAlias = str | float | bool | None
SettingKind: TypeAlias = Literal["text", "number", "model"]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that can be changed here. `value` null means unset."""

    key: str
    value: SettingValue
    kind: SettingKind
    description: str
    fixed_by: str
    """The environment variable, flag or project file that wins over the user's file; empty if there is none."""
    applies: Literal["now", "restart"]


class SettingList(msgspec.Struct, frozen=True, kw_only=True):
    settings: tuple[SettingView, ...]
    file: str
    """Where changes are written."""
    restart: tuple[str, ...] = ()
    """Settings that were changed and apply after a restart."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: SettingValue
    """Null removes the setting from the file."""


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A model at a server of the user's choice."""

    name: str
    provider: str
    model: str
    base_url: str
    has_key: bool


class ServerList(msgspec.Struct, frozen=True):
    servers: tuple[ServerView, ...]


class ServerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    provider: Name = "compatible"
    model: Name = ""
    """The server's name for it; empty means the name of the entry."""
    base_url: Annotated[str, Meta(min_length=1, max_length=8_000)]
    api_key: Annotated[str, Meta(max_length=1_000)] = ""
    """Empty keeps the key that is stored, if there is one."""


class ServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """`refused` means that the key is not accepted, `unknown` that the server could not be asked."""

    state: Literal["works", "refused", "unknown"]
    text: str
    models: tuple[str, ...] = ()


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    role: Literal["admin", "user", "viewer"] = "user"


class UserChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not given stays. `day_usd` null removes the budget."""

    role: Literal["admin", "user", "viewer"] | msgspec.UnsetType = msgspec.UNSET
    day_usd: Annotated[float, Meta(ge=0, le=1_000_000)] | msgspec.UnsetType | None = msgspec.UNSET


class UserEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: Literal["admin", "user", "viewer"]
    created_at: float
    day_usd: float | None
    """What the sessions of the user may cost in a day, in US dollars; null means no limit."""
    spent_usd: float
    """What they have cost today."""


class UserList(msgspec.Struct, frozen=True):
    users: tuple[UserEntry, ...]


class UserKey(msgspec.Struct, frozen=True):
    """Shown once: the store has only its hash."""

    name: str
    key: str
