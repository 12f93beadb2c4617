"""What the shell offers behind -m, -r and the names of sessions."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Configured names, then platforms. Several may be given, with commas between them."""
    from loom.config import load_config
    from loom.errors import LoomError
    from loom.providers.catalog import platforms

    try:
        configured = list(load_config().models)
    except LoomError:
        configured = []
    done, comma, last = incomplete.rpartition(",")
    names = [*configured, "spark", *(f"{platform}/" for platform in platforms() if platform != "loom")]
    return [CompletionItem(f"{done}{comma}{name}") for name in names if name.startswith(last)]


def complete_sessions(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    import asyncio

    from loom.errors import LoomError

    try:
        found = asyncio.run(_sessions(incomplete))
    except LoomError:
        found = []
    return [CompletionItem("latest")] * "latest".startswith(incomplete) + found


async def _sessions(incomplete: str) -> list[CompletionItem]:
    from loom.runtime import Runtime

    async with Runtime.open() as runtime:
        newest = await runtime.sessions.list(limit=20)
    return [
        CompletionItem(session.id, help=session.title)
        for session in newest
        if session.id.startswith(incomplete.upper())
    ]


def complete_templates(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from loom.cli.templates import names
    from loom.errors import LoomError

    try:
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
    except LoomError:
        return []
