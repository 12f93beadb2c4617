"""The prompt library: the templates of the command (`--save`, `-t`), over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec

from loom.api_types import PromptBody, PromptList, PromptView
from loom.config.templates import Template, fields_of, names, read_template, remove_template, save_template
from loom.daemon.dispatch import Call
from loom.errors import ConfigError


async def list_prompts(_: Call[None, None]) -> PromptList:
    return PromptList(await asyncio.to_thread(_prompts))


async def save_prompt(call: Call[None, PromptBody]) -> PromptView:
    """Save a prompt. What only the command sets in a template (files, settings) stays."""
    return await asyncio.to_thread(_save, call.path("prompt"), call.body)


async def delete_prompt(call: Call[None, None]) -> None:
    await asyncio.to_thread(remove_template, call.path("prompt"))


def _prompts() -> tuple[PromptView, ...]:
    found: list[PromptView] = []
    for name in names():
        with suppress(ConfigError):  # written by hand, and wrong: the command says so when it is used
            found.append(_view(name, read_template(name)))
    return tuple(found)


def _save(name: str, body: PromptBody) -> PromptView:
    known = Template()
    if name in names():
        known = read_template(name)
    template = msgspec.structs.replace(
        known, prompt=body.text, system=body.system, model=body.model, params={**body.params}
    )
    save_template(name, template)
    return _view(name, template)


def _view(name: str, template: Template) -> PromptView:
    return PromptView(
        name=name,
        text=template.prompt,
        system=template.system,
        model=template.model,
        params={key: str(value) for key, value in template.params.items()},
        fields=fields_of(template),
    )
