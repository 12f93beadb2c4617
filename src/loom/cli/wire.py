"""`loom wire`: the exact request that a model would be sent, without sending it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
import msgspec

from loom.cli.compiling import Compiled, compiled, models
from loom.cli.completing import complete_models
from loom.cli.terminal import say
from loom.errors import ConfigError
from loom.models import Model
from loom.providers.http import WIRES
from loom.providers.media_body import MediaBody, elided


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
@click.option("--full", is_flag=True, help="With all media, exactly as on the wire.")
def command(source: str, reference: str, full: bool) -> None:
    """Print {"provider", "model", "request"}: the exact body for this model, offline and without a key.

    FILE is a conversation: Loom's own JSON, messages in the style of OpenAI, Anthropic, Gemini or Ollama, or a
    transcript of Claude Code, Codex or llm. With nothing given, the last session of this folder. Media are shown as
    digest and size unless --full. What was changed on the way is said on stderr; `loom context` tells more.
    """
    asyncio.run(_wire(source, reference, full))


async def _wire(source: str, reference: str, full: bool) -> None:
    async with compiled(source) as found:
        chosen = models(reference, found.config)
        if len(chosen) != 1:
            raise ConfigError("a request is for one model.", hint="Give -m one name; `loom context` compares several.")
        if chosen[0].wire not in WIRES:
            raise ConfigError(f"{reference} has no wire: it answers inside Loom.", hint="Choose another model.")
        await print_request(found, chosen[0], full=full)


async def print_request(found: Compiled, model: Model, *, full: bool) -> None:
    prepared = await found.prepared(model)
    for notice in (*found.notices, *prepared.receipt.notices):
        say(notice)
    request: dict[str, Any] = WIRES[model.wire].encode(prepared.prompt)
    head = {"provider": model.provider, "model": model.name}
    if not full:
        click.echo(msgspec.json.encode({**head, "request": elided(request)}))
        return
    stdout = sys.stdout.buffer
    stdout.write(msgspec.json.encode(head)[:-1] + b',"request":')
    async for piece in MediaBody(request, found.renditions):
        stdout.write(piece)
    stdout.write(b"}\n")
