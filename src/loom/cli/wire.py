"""`loom wire`: the exact request that a model would be sent, without sending it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
import msgspec

from loom.cli.completion_values import complete_models
from loom.cli.plan import CompileSource, compile_source
from loom.cli.terminal import print_line
from loom.errors import ConfigError
from loom.models import Model
from loom.providers.http import WIRES
from loom.providers.media_body import MediaBody, elide_media


@click.command("wire")
@click.argument("source", metavar="[FILE|SESSION]", default="")
@click.option(
    "-m",
    "--model",
    "reference",
    required=True,
    shell_complete=complete_models,
    help="platform/name or a configured name.",
)
@click.option("--full", is_flag=True, help="Include all media, exactly as sent.")
def command(source: str, reference: str, full: bool) -> None:
    """Print {"provider", "model", "request"}: the exact body for this model, offline and without a key.

    FILE is a conversation: Loom's own JSON, messages in the style of OpenAI, Anthropic, Gemini or Ollama, or a
    transcript of Claude Code, Codex or llm. Default: the last session of this folder. Media are shown as
    digest and size unless --full. What was changed on the way is said on stderr; `loom context` tells more.
    """
    asyncio.run(_wire(source, reference, full))


async def _wire(source: str, reference: str, full: bool) -> None:
    async with compile_source(source) as found:
        chosen = await found.models(reference)
        if len(chosen) != 1:
            raise ConfigError("A request is for one model.", hint="Give -m one name; `loom context` compares several.")
        if chosen[0].wire not in WIRES:
            raise ConfigError(f"{reference} runs inside Loom: it sends no request.", hint="Choose another model.")
        await print_request(found, chosen[0], full=full)


async def print_request(found: CompileSource, model: Model, *, full: bool) -> None:
    compiled_request = await found.compile(model)
    for notice in (*found.notices, *compiled_request.receipt.notices):
        print_line(notice)
    request: dict[str, Any] = WIRES[model.wire].encode(compiled_request.prompt)
    head = {"provider": model.provider, "model": model.name}
    if not full:
        click.echo(msgspec.json.encode({**head, "request": elide_media(request)}))
        return
    stdout = sys.stdout.buffer
    stdout.write(msgspec.json.encode(head)[:-1] + b',"request":')
    async for piece in MediaBody(request, found.renditions):
        stdout.write(piece)
    stdout.write(b"}\n")
