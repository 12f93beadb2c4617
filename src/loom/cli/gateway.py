"""`loom gateway`: how to configure other programs for the daemon, and a check of its protocols."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any, Final

import click
import msgspec

from loom.cli.shared.daemon_lookup import running_daemon
from loom.cli.shared.exit_codes import FAILED, OK
from loom.client.connection import DaemonConnection
from loom.config import load_config
from loom.errors import LoomError

_CODEX: Final = """export LOOM_TOKEN=$(loom token)
codex -c model_provider=loom -c 'model_providers.loom={{name="loom", base_url="{url}/v1", env_key="LOOM_TOKEN", \
wire_api="responses"}}'"""
_OPENCODE: Final = """export LOOM_TOKEN=$(loom token)
# opencode.json: {{"provider": {{"loom": {{"npm": "@ai-sdk/openai-compatible", "options": {{"baseURL": "{url}/v1", \
"apiKey": "{{env:LOOM_TOKEN}}"}}, "models": {{"{model}": {{}}}}}}}}}}"""
CLIENTS: Final = {
    "claude-code": (
        "claude",
        "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_AUTH_TOKEN=$(loom token)",
    ),
    "codex": ("codex", _CODEX),
    "opencode": ("opencode", _OPENCODE),
    "aider": (
        "aider",
        "export OPENAI_API_BASE={url}/v1 OPENAI_API_KEY=$(loom token)\naider --model openai/{model}",
    ),
    "cline": ("", "# API provider: OpenAI Compatible. Base URL: {url}/v1\n# API key: the output of `loom token`"),
    "open-webui": (
        "",
        "export OPENAI_API_BASE_URL={url}/v1\nexport OPENAI_API_KEY=$(loom token)",
    ),
    "anthropic-sdk": ("", "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_API_KEY=$(loom token)"),
    "openai-sdk": ("", "export OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY=$(loom token)"),
}
"""The executable of each client, and the two lines that configure it."""
_PROBES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Anthropic Messages": (
        "/v1/messages",
        {"max_tokens": 16, "messages": [{"role": "user", "content": "Say hello."}]},
    ),
    "OpenAI Responses": ("/v1/responses", {"input": "Say hello.", "store": False}),
    "OpenAI Chat Completions": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hello."}]}),
}


@click.command("gateway")
@click.argument("client", required=False, type=click.Choice(list(CLIENTS)), metavar="[CLIENT]")
@click.option("-m", "--model", default="", help="The model that the lines name. Default: the default model.")
@click.option("--check", is_flag=True, help="Send a short message through each protocol. Costs what the model costs.")
def gateway_command(client: str | None, model: str, check: bool) -> int:
    """Show how other programs use any model through Loom.

    CLIENT is one of claude-code, codex, opencode, aider, cline, open-webui, anthropic-sdk and openai-sdk; without it,
    those that are installed, and the SDKs. The daemon must run (`loom serve`).
    """
    return asyncio.run(_gateway(client, model, check=check))


async def _gateway(client: str | None, model: str, *, check: bool) -> int:
    config = load_config()
    link = await running_daemon(config)
    url = link.url if link is not None else f"http://{config.server.host}:{config.server.port}"
    name = model or config.model or "loom/spark"
    try:
        present = [name for name, (program, _) in CLIENTS.items() if not program or shutil.which(program)]
        for found in [client] if client else present:
            click.echo(f"# {found}\n{CLIENTS[found][1].format(url=url, model=name)}\n")
        if link is None:
            click.echo("The daemon is not running. Start it: loom serve", err=True)
            return FAILED if check else OK
        return await _check(link, name) if check else OK
    finally:
        if link is not None:
            await link.close()


async def _check(link: DaemonConnection, model: str) -> int:
    code = OK
    for name, (path, body) in _PROBES.items():
        try:
            answer = await link.ask("POST", path, json={**body, "model": model}, repeats=False)
            words = msgspec.json.decode(answer)
            click.echo(f"✔ {name}: {words['id']}")
        except LoomError as error:
            code = FAILED
            click.echo(f"✘ {name}: {error}")
    return code
