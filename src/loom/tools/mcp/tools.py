"""Tools of a server as models see them: legal names, and a fingerprint that changes with everything that a user or a
model reads. There are additional tools for a server's resources and prompts.

Every call needs the user's approval unless a rule allows it: a server's hints about its tools ("read-only") count only
if the user configured the server as `trusted`, and then affect how calls are scheduled, not whether the user is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.content.blocks import ToolResult, clean_text
from loom.content.json_values import json_text, sanitize_json
from loom.errors import ConfigError, ToolError
from loom.prompt import ToolSpec
from loom.tools.base import Tool, ToolContext, text_result
from loom.tools.input_schema import InputSchema, parse_input_schema
from loom.tools.mcp.content import shorten, tool_result
from loom.tools.mcp.records import Pins
from loom.tools.mcp.specs import Listing

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from loom.tools.mcp.servers import Server

MAX_DESCRIPTION: Final = 4_000
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX_NAME: Final = 64
MAX_RESOURCES: Final = 500
PROGRESS_PAUSE_SECONDS: Final = 0.1


def tool_name(server: str, tool: str, taken: Container[str]) -> str:
    """Return `server__tool` in the characters that every platform accepts; a hash distinguishes long and colliding
    names."""
    plain = f"{_ILLEGAL.sub('_', server)}__{_ILLEGAL.sub('_', tool)}"
    plain = plain if plain[0].isalpha() else f"m{plain}"
    if len(plain) <= _MAX_NAME and plain not in taken:
        return plain
    mark = hashlib.sha256(f"{server}\0{tool}".encode(errors="replace")).hexdigest()[:8]
    return f"{plain[: _MAX_NAME - 9]}_{mark}"


def tool_spec(name: str, tool: types.Tool, schema: InputSchema) -> ToolSpec:
    description = clean_text(tool.description or tool.title or "")
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    return ToolSpec(name=name, description=description, parameters=schema.parameters)


def fingerprint(tool: types.Tool) -> str:
    """Return a digest of everything that a user approves: the name, the texts, the parameters, the hints."""
    shown = tool.model_dump(mode="json", include={"name", "title", "description", "input_schema", "annotations"})
    return hashlib.sha256(msgspec.json.encode(sanitize_json(shown), order="sorted")).hexdigest()


class McpTool(Tool):
    """A tool of a server, in the version that was listed."""

    def __init__(self, server: Server, found: types.Tool, name: str, pins: Pins) -> None:
        hints = found.annotations if server.spec.trusted else None
        reads_only = hints is not None and hints.read_only_hint is True
        repeatable = hints is not None and hints.idempotent_hint is True

        def no_function() -> None: ...  # `run` calls the server instead

        super().__init__(
            no_function, name=name, danger="ask", preview=self._describe, reads_only=reads_only, repeatable=repeatable
        )
        self._schema = parse_input_schema(found.input_schema)
        self.spec = tool_spec(name, found, self._schema)
        self.tool = found.name
        self.fingerprint = fingerprint(found)
        self._server = server
        self._pins = pins

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._schema.check_arguments(self.name, arguments)

    def _describe(self, _workspace: Path, arguments: dict[str, Any]) -> str:
        """Return the text that the user reads before approving a call: the server, the description, and every
        argument."""
        description = shorten(self.spec.description) or "no description"
        texts = {key: value if isinstance(value, str) else json_text(value) for key, value in arguments.items()}
        lines = [f"{key}: {text}" for key, text in texts.items()] or ["(no arguments)"]
        return "\n".join([f"{self.tool} of MCP server {self._server.name!r}: {description}", "", *lines])

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        given = sanitize_json(self.check_arguments(arguments))
        await self._approve_change(context, self._server.name)
        progress = _progress_events(context)

        async def call_tool(client: Client) -> types.CallToolResult:
            if self._server.tools.get(self.name) is not self:
                raise ToolError(f"{self.name} has changed or was removed. Look at the current tools.")
            return await client.call_tool(self.tool, given, progress_callback=progress)

        answer = await self._server.call(self.tool, call_tool, context)
        return await tool_result(answer, context.attach, self._server.name)

    async def _approve_change(self, context: ToolContext, server: str) -> None:
        # Stored under our own name, which rules and approvals use: the tool behind it cannot change without an
        # approval. Files of older versions have it under the server's name.
        known = self._pins.get(server, self.name) or self._pins.get(server, self.tool)
        if known == self.fingerprint:
            return
        if known is not None:
            action = f"use {self.name}, whose description is now: {shorten(self.spec.description) or '(none)'}"
            await context.confirm(action, why=f"MCP server {server!r} has changed this tool since it was last used")
        try:
            await asyncio.to_thread(self._pins.put, server, self.name, self.fingerprint)
        except ConfigError as error:
            self._server.notice(f"The approved version of {self.name} could not be stored: {error}")


def _progress_events(context: ToolContext) -> ProgressFnT:
    """Return a callback that shows progress, at most a few times a second."""
    last = -math.inf

    async def show(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now < last + PROGRESS_PAUSE_SECONDS:
            return
        last = now
        fraction = progress / total if total else math.nan
        text = shorten(message or f"{progress:g}{f' of {total:g}' if total else ''}")
        await context.emit(text, fraction=min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else None)

    return show


# Resources and prompts -----------------------------------------------------------------------------------------------


def extra_tools(server: Server, listing: Listing, taken: Container[str]) -> Iterator[Tool]:
    """Yield tools for the resources and prompts of a server, if it has any."""
    name = server.name

    async def list_resources(context: ToolContext) -> ToolResult:
        """List what this MCP server offers to read: documents, files, records. Read one with read_resource."""
        return text_result(await server.call("list_resources", _list_resources, context))

    async def read_resource(context: ToolContext, uri: str) -> ToolResult:
        """Read a resource of this MCP server.

        uri: as list_resources gives it; a template with its parameters filled in
        """
        return ToolResult("-", tuple(await server.read_resource(uri, context.attach, context)))

    async def get_prompt(context: ToolContext, prompt: str, arguments: dict[str, str] | None = None) -> ToolResult:
        """Get a prompt of this MCP server: instructions for a task, written by its author.

        prompt: its name
        arguments: its arguments
        """
        return ToolResult("-", tuple(await server.get_prompt(prompt, arguments or {}, context.attach, context)))

    functions = [list_resources, read_resource] if listing.has_resources else []
    for function in [*functions, *([get_prompt] if listing.prompts else [])]:
        made = Tool(
            function, name=tool_name(name, function.__name__, taken), danger="ask", reads_only=server.spec.trusted
        )
        lines = [made.spec.description, f"Server: {name}."]
        lines += [_prompt_line(prompt) for prompt in listing.prompts] if function is get_prompt else []
        made.spec = msgspec.structs.replace(made.spec, description="\n".join(lines)[:MAX_DESCRIPTION])
        yield made


def _prompt_line(prompt: types.Prompt) -> str:
    given = " ".join(f"{one.name}{'' if one.required else '?'}" for one in prompt.arguments or ())
    return f"- {shorten(prompt.name)}({given}): {shorten(prompt.description or prompt.title or '')}"


async def _list_resources(client: Client) -> str:
    """Return the resources and templates of a server, one per line."""
    from loom.tools.mcp.connection import list_pages

    found = [(it.uri, it) for it in await list_pages(client.list_resources, "resources", MAX_RESOURCES)]
    templates = await list_pages(client.list_resource_templates, "resource_templates", MAX_RESOURCES)
    found += [(it.uri_template, it) for it in templates]
    lines: list[str] = []
    for address, resource in found[:MAX_RESOURCES]:
        facts = (resource.title or resource.name, resource.mime_type, resource.description)
        lines.append(f"{shorten(address)} · {shorten(', '.join(fact for fact in facts if fact))}")
    return "\n".join(lines) or "No resources."
