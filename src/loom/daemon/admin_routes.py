"""Routes that manage a daemon: settings of the user's file, model servers, users. Changes apply at once, or after a
restart, which the response then states."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.config import Config, Secret
from loom.config.files import display_path
from loom.config.schema import ModelEntry, Settings
from loom.config.schema_tree import decode_custom_type, key_text
from loom.config.secret import Url
from loom.config.templates import remove_templates
from loom.config.toml_files import add_table, remove_table, set_value, user_config_file
from loom.daemon.admin_types import (
    NewUser,
    ServerBody,
    ServerCheck,
    ServerList,
    ServerView,
    SettingChange,
    SettingKind,
    SettingList,
    SettingValue,
    SettingView,
    UserChange,
    UserEntry,
    UserKey,
    UserList,
)
from loom.daemon.dispatch import Call
from loom.daemon.services import Daemon
from loom.errors import ConfigError, NotFound
from loom.runtime import key_for, resolve_model
from loom.struct_types import convert

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOW: Final[Mapping[tuple[str, ...], tuple[SettingKind, str]]] = {
    ("model",): ("model", "The default model of new sessions."),
    ("context", "describer"): ("model", "The model that describes images for text-only models."),
    ("prompt", "append"): ("text", "Added to the system prompt of new sessions."),
    ("turn", "max_usd"): ("number", "What one turn may cost, in US dollars."),
    ("turn", "max_steps"): ("number", "Model calls per turn."),
    ("budget", "session_usd"): ("number", "What a session may cost, in US dollars."),
    ("budget", "day_usd"): ("number", "What all sessions of a day may cost, in US dollars."),
    ("budget", "total_usd"): ("number", "What all stored sessions may cost, in US dollars."),
}
_AFTER_RESTART: Final[Mapping[tuple[str, ...], tuple[SettingKind, str]]] = {
    ("server", "host"): ("text", "The address that the server listens on."),
    ("server", "port"): ("number", "The port that the server listens on."),
    ("server", "max_upload_bytes"): ("number", "The largest upload, in bytes."),
}
EDITABLE: Final = {**_NOW, **_AFTER_RESTART}


# Settings -------------------------------------------------------------------------------------------------------------


async def list_settings(call: Call[None, None]) -> SettingList:
    return _settings(call.daemon)


async def change_setting(call: Call[None, SettingChange]) -> SettingList:
    """Write the setting to the user's file, and apply it at once where possible."""
    daemon, key, value = call.daemon, call.path("key"), call.body.value
    path = tuple(key.split("."))
    if path not in EDITABLE:
        known = ", ".join(map(key_text, EDITABLE))
        raise NotFound(f"{key[:80]!r} cannot be changed here.", hint=f"Settings that can be changed: {known}.")
    if EDITABLE[path][0] == "model" and value:
        daemon.library.check_model(str(value))
    async with daemon.config_lock:
        changed = _with_setting(daemon.runtime.config, path, value)
        await asyncio.to_thread(lambda: set_value(user_config_file(), path, value))
        if path in _NOW:
            daemon.runtime.reconfigure(changed)
        else:
            daemon.restart_settings.add(key)
        return _settings(daemon)


def _settings(daemon: Daemon) -> SettingList:
    config = daemon.runtime.config
    rows: list[SettingView] = []
    for path, (kind, description) in EDITABLE.items():
        value: Any = config
        for name in path:
            value = getattr(value, name)
        rows.append(
            SettingView(
                key=key_text(path),
                value=value,
                kind=kind,
                description=description,
                fixed_by=_fixed_by(config, path),
                applies="now" if path in _NOW else "restart",
            )
        )
    file = display_path(user_config_file(), Path.cwd())
    return SettingList(settings=tuple(rows), file=file, restart=tuple(sorted(daemon.restart_settings)))


def _fixed_by(config: Config, path: Sequence[str]) -> str:
    origin = config.origin(*path)
    return str(origin) if origin.layer in ("environment", "flags", "project") else ""


def _with_setting(config: Config, path: Sequence[str], value: SettingValue) -> Config:
    """Return the configuration with this value; raise `ConfigError` if it is not valid. None means the default."""
    nested: Any = value
    for name in reversed(path):
        nested = {name: nested}
    try:
        read = Settings() if value is None else convert(nested, Settings, dec_hook=decode_custom_type, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Not valid: {error}", key=".".join(path), hint="Nothing was changed.") from None
    if len(path) == 1:
        return msgspec.structs.replace(config, **{path[0]: getattr(read, path[0])})
    section, key = path
    fresh = msgspec.structs.replace(getattr(config, section), **{key: getattr(getattr(read, section), key)})
    return msgspec.structs.replace(config, **{section: fresh})


# Model servers --------------------------------------------------------------------------------------------------------


async def list_servers(call: Call[None, None]) -> ServerList:
    return _servers(call.daemon.runtime.config)


def _servers(config: Config) -> ServerList:
    found = (
        ServerView(
            name=name,
            provider=entry.provider,
            model=entry.model or name,
            base_url=str(entry.base_url),
            has_key=bool(entry.api_key),
        )
        for name, entry in sorted(config.models.items())
        if entry.base_url
    )
    return ServerList(tuple(found))


async def set_server(call: Call[None, ServerBody]) -> ServerList:
    """Add or replace a model at a server; it can be selected at once."""
    daemon, name, body = call.daemon, call.path("server"), call.body
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name[:80]!r} cannot be the name of a model.", hint="Use letters, digits and . _ -")
    values = {"provider": body.provider, "model": body.model or name, "base_url": body.base_url}
    try:
        entry = convert(values, ModelEntry, dec_hook=decode_custom_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Not valid: {error}", key=f"models.{name}", hint="Nothing was changed.") from None
    if not body.base_url.startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {body.base_url[:200]}", hint="It starts with http:// or https://.")
    async with daemon.config_lock:
        config = daemon.runtime.config
        before = config.models.get(name)
        key = body.api_key or (config.secret("models", name, "api_key") if before is not None else "")
        entry = msgspec.structs.replace(entry, api_key=Secret(key))
        changed = msgspec.structs.replace(config, models={**config.models, name: entry})
        resolve_model(name, changed)  # raises `ConfigError` if the entry names no known provider

        def write() -> None:
            file = user_config_file()
            if before is not None:
                remove_table(file, ("models", name))
            add_table(file, ("models", name), {**values, **({"api_key": key} if key else {})})

        await asyncio.to_thread(write)
        daemon.runtime.reconfigure(changed)
        return _servers(changed)


async def remove_server(call: Call[None, None]) -> ServerList:
    daemon, name = call.daemon, call.path("server")
    async with daemon.config_lock:
        config = daemon.runtime.config
        if name not in config.models:
            raise NotFound("Server not found.", hint="To remove an entry of a project file, edit that file.")
        await asyncio.to_thread(lambda: remove_table(user_config_file(), ("models", name)))
        changed = msgspec.structs.replace(
            config, models={key: entry for key, entry in config.models.items() if key != name}
        )
        daemon.runtime.reconfigure(changed)
        return _servers(changed)


async def test_server(call: Call[None, ServerBody]) -> ServerCheck:
    """List the models of a server. Nothing is stored."""
    from loom.providers.key_check import check_key

    body, config = call.body, call.daemon.runtime.config
    if not body.base_url.startswith(("http://", "https://")):
        raise ConfigError(f"Not a URL: {body.base_url[:200]}", hint="It starts with http:// or https://.")
    same = next((name for name, one in config.models.items() if one.base_url == Url(body.base_url)), "")
    stored = config.secret("models", same, "api_key") if same else ""
    key = body.api_key or stored or key_for(body.provider, config) or ""
    found = await check_key(body.provider, key, base_url=body.base_url)
    return ServerCheck(state=found.state, text=found.text, models=found.models[:200])


# Users ----------------------------------------------------------------------------------------------------------------


async def list_users(call: Call[None, None]) -> UserList:
    runtime = call.daemon.runtime
    found, spent = await runtime.accounts.list(), await runtime.user_costs.list()
    return UserList(
        tuple(
            UserEntry(
                name=one.name,
                role=one.role,
                created_at=one.created_at,
                day_usd=one.day_usd,
                spent_usd=spent[one.name].usd if one.name in spent else 0.0,
            )
            for one in found
        )
    )


async def add_user(call: Call[None, NewUser]) -> UserKey:
    account, key = await call.daemon.runtime.accounts.add(call.body.name, call.body.role)
    return UserKey(account.name, key)


async def change_user(call: Call[None, UserChange]) -> UserList:
    accounts, name, body = call.daemon.runtime.accounts, call.path("user"), call.body
    if body.role is not msgspec.UNSET:
        await accounts.set_role(name, body.role)
    if body.day_usd is not msgspec.UNSET:
        await accounts.set_budget(name, body.day_usd)
    return await list_users(cast("Call[None, None]", call))


async def replace_user_key(call: Call[None, None]) -> UserKey:
    name = call.path("user")
    return UserKey(name, await call.daemon.runtime.accounts.new_key(name))


async def remove_user(call: Call[None, None]) -> None:
    removed = await call.daemon.runtime.accounts.remove(call.path("user"))
    await asyncio.to_thread(remove_templates, removed.id)
