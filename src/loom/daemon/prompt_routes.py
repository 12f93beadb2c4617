"""The prompt library: the templates of `loom` (`--save`, `-t`), over HTTP.

These templates are shared: every user reads them, administrators change them. Each user also has private prompts; a
private prompt hides a shared one of the same name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from loom.api_types import PromptBody, PromptList, PromptView
from loom.config.templates import Template, fields_of, read_template, remove_template, save_template, template_names
from loom.daemon.dispatch import Call
from loom.daemon.problems import Forbidden
from loom.daemon.sign_in import Identity
from loom.errors import ConfigError


async def list_prompts(call: Call[None, None]) -> PromptList:
    return PromptList(await asyncio.to_thread(_prompts, _library_of(call.identity)))


async def save_prompt(call: Call[None, PromptBody]) -> PromptView:
    """Save a prompt. Fields of a template that only `loom` sets (files, settings) stay unchanged."""
    return await asyncio.to_thread(_save, call.path("prompt"), call.body, _library_of(call.identity))


async def delete_prompt(call: Call[None, None]) -> None:
    name, account = call.path("prompt"), _library_of(call.identity)
    if (
        account
        and name in await asyncio.to_thread(template_names)
        and name not in await asyncio.to_thread(template_names, account)
    ):
        raise Forbidden("This prompt is shared.", hint="An administrator can delete it.")
    await asyncio.to_thread(remove_template, name, account)


def _library_of(identity: Identity) -> str:
    """Return the account whose prompts the user changes; empty for the shared ones."""
    return "" if identity.is_admin else identity.account


def _prompts(account: str) -> tuple[PromptView, ...]:
    found: dict[str, PromptView] = {}
    for library in dict.fromkeys(("", account)):
        for name in template_names(library):
            with suppress(ConfigError):  # edited by hand and not valid: `loom` reports it when it is used
                found[name] = _view(name, read_template(name, library), is_shared=not library)
    return tuple(found[name] for name in sorted(found))


def _save(name: str, body: PromptBody, account: str) -> PromptView:
    known = read_template(name, account) if name in template_names(account) else Template()
    template = msgspec.structs.replace(
        known, prompt=body.text, system=body.system, model=body.model, params={**body.params}
    )
    save_template(name, template, account)
    return _view(name, template, is_shared=not account)


def _view(name: str, template: Template, *, is_shared: bool) -> PromptView:
    return PromptView(
        name=name,
        text=template.prompt,
        system=template.system,
        model=template.model,
        params={key: str(value) for key, value in template.params.items()},
        fields=fields_of(template),
        is_shared=is_shared,
    )
