"""`loom gateway`: how to configure other programs for the daemon, and a check of its protocols."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from loom.cli.shared.daemon_lookup import running_daemon
from loom.cli.shared.exit_codes import FAILED, OK
from loom.client.connection import DaemonConnection
from loom.config import load_config
from loom.errors import LoomError

_CODEX: Final = """export LOOM_TOKEN=$(loom token)
codex -m {model} -c model_provider=loom -c 'model_providers.loom={{name="loom", base_url="{url}/v1", \
env_key="LOOM_TOKEN", wire_api="responses"}}'"""
_OPENCODE: Final = """export LOOM_TOKEN=$(loom token)
# opencode.json: {{"provider": {{"loom": {{"npm": "@ai-sdk/openai-compatible", "options": {{"baseURL": "{url}/v1", \
"apiKey": "{{env:LOOM_TOKEN}}"}}, "models": {{"{model}": {{}}}}}}}}}}"""
_HELLO: Final = [{"role": "user", "content": "Say hello."}]
_PROBES: Final[dict[str, dict[str, Any]]] = {
    "/v1/messages": {"max_tokens": 16, "messages": _HELLO},
    "/v1/responses": {"input": "Say hello.", "store": False},
    "/v1/chat/completions": {"messages": _HELLO},
}


class _GatewayProgram(msgspec.Struct, frozen=True):
    """A client: the two lines that configure it, the routes that it uses, and its executable."""

    lines: str
    posts: tuple[str, ...]
    """The protocols in which it asks."""
    executable: str = ""
    """Empty if it has none by which it can be found."""
    gets: tuple[str, ...] = ()
    """What it requests before it asks."""


CLIENTS: Final = {
    "claude-code": _GatewayProgram(
        "export ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN=$(loom token)\n"
        "export ANTHROPIC_MODEL={model} ANTHROPIC_DEFAULT_HAIKU_MODEL={model}",
        ("/v1/messages",),
        "claude",
        ("/",),
    ),
    "codex": _GatewayProgram(_CODEX, ("/v1/responses",), "codex"),
    "opencode": _GatewayProgram(_OPENCODE, ("/v1/chat/completions",), "opencode"),
    "aider": _GatewayProgram(
        "export OPENAI_API_BASE={url}/v1 OPENAI_API_KEY=$(loom token)\naider --model openai/{model}",
        ("/v1/chat/completions",),
        "aider",
    ),
    "cline": _GatewayProgram(
        "# API provider: OpenAI Compatible. Base URL: {url}/v1\n"
        "# API key: the output of `loom token`. Model ID: {model}",
        ("/v1/chat/completions",),
        gets=("/v1/models",),
    ),
    "open-webui": _GatewayProgram(
        "export OPENAI_API_BASE_URL={url}/v1\nexport OPENAI_API_KEY=$(loom token)",
        ("/v1/chat/completions",),
        gets=("/v1/models",),
    ),
    "anthropic-sdk": _GatewayProgram(
        "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_API_KEY=$(loom token)", ("/v1/messages",)
    ),
    "openai-sdk": _GatewayProgram(
        "export OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY=$(loom token)",
        ("/v1/responses", "/v1/chat/completions"),
    ),
}


@click.command("gateway")
@click.argument("client", required=False, type=click.Choice(list(CLIENTS)), metavar="[CLIENT]")
@click.option("-m", "--model", default="", help="The model to use in the output. Default: the default model.")
@click.option("--check", is_flag=True, help="Send a short message as each client does. The provider bills it.")
def gateway_command(client: str | None, model: str, check: bool) -> int:
    """Show how to use any model from other programs, through Loom.

    CLIENT is one of claude-code, codex, opencode, aider, cline, open-webui, anthropic-sdk and openai-sdk; without it,
    those that are installed, and the SDKs. The daemon must be running (`loom serve`).
    """
    return asyncio.run(_gateway(client, model, check=check))


async def _gateway(client: str | None, model: str, *, check: bool) -> int:
    config = load_config()
    link = await running_daemon(config)
    url = link.url if link is not None else f"http://{config.server.host}:{config.server.port}"
    name = model or config.model or "loom/spark"
    try:
        present = [name for name, it in CLIENTS.items() if not it.executable or shutil.which(it.executable)]
        wanted = [client] if client else present
        for found in wanted:
            click.echo(f"# {found}\n{CLIENTS[found].lines.format(url=url, model=name)}\n")
        if link is None:
            click.echo("The daemon is not running. Start it: `loom serve`.", err=True)
            return FAILED if check else OK
        return await _check(link, wanted, name) if check else OK
    finally:
        if link is not None:
            await link.close()


async def _check(link: DaemonConnection, clients: Sequence[str], model: str) -> int:
    """Print what becomes of the requests of each client. Each request is sent once, even if several clients make it."""
    outcomes: dict[str, str] = {}
    code = OK
    for client in clients:
        routes = (*CLIENTS[client].gets, *CLIENTS[client].posts)
        for route in routes:
            if route not in outcomes:
                outcomes[route] = await _problem(link, route, model)
        problems = [f"{route}: {outcomes[route]}" for route in routes if outcomes[route]]
        code = FAILED if problems else code
        click.echo(f"✖ {client}: {'; '.join(problems)}" if problems else f"✔ {client}: {', '.join(routes)}")
    return code


async def _problem(link: DaemonConnection, route: str, model: str) -> str:
    """Return why the daemon does not answer a request; empty if it does."""
    try:
        if route in _PROBES:
            await link.ask("POST", route, json={**_PROBES[route], "model": model}, repeats=False)
        else:
            await link.ask("GET", route, repeats=False)
    except LoomError as error:
        return str(error)
    return ""
