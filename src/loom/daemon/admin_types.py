"""Types of the routes that manage a daemon: settings, model servers, users."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.api_types import Name

SettingValue: TypeAlias = str | float | bool | None
SettingKind: TypeAlias = Literal["text", "number", "model"]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that can be changed here. A null `value` means unset."""

    key: str
    value: SettingValue
    kind: SettingKind
    description: str
    fixed_by: str
    """The environment variable, flag or project file that overrides the user's file; empty if there is none."""
    applies: Literal["now", "restart"]


class SettingList(msgspec.Struct, frozen=True, kw_only=True):
    settings: tuple[SettingView, ...]
    file: str
    """The file that changes are written to."""
    restart: tuple[str, ...] = ()
    """Settings whose change applies after a restart."""


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
    """The server's name for the model; empty means the name of the entry."""
    base_url: Annotated[str, Meta(min_length=1, max_length=8_000)]
    api_key: Annotated[str, Meta(max_length=1_000)] = ""
    """Empty keeps the stored key, if there is one."""


class ServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a connection test. `refused`: the server does not accept the key. `unknown`: the key could not be
    checked."""

    state: Literal["works", "refused", "unknown"]
    text: str
    models: tuple[str, ...] = ()


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    role: Literal["admin", "user", "viewer"] = "user"


class UserChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that are not given stay unchanged. A null `day_usd` removes the budget."""

    role: Literal["admin", "user", "viewer"] | msgspec.UnsetType = msgspec.UNSET
    day_usd: Annotated[float, Meta(ge=0, le=1_000_000)] | msgspec.UnsetType | None = msgspec.UNSET


class UserEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: Literal["admin", "user", "viewer"]
    created_at: float
    day_usd: float | None
    """The maximum cost of the user's sessions per day, in US dollars; null means no limit."""
    spent_usd: float
    """The cost of the user's sessions today, in US dollars."""


class UserList(msgspec.Struct, frozen=True):
    users: tuple[UserEntry, ...]


class UserKey(msgspec.Struct, frozen=True):
    """A user's key. It is returned once: the store has only its hash."""

    name: str
    key: str
