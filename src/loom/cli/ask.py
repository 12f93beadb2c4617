"""`loom ask`, which is also `loom "…"`: one message, one answer, and a session to go on from."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
import msgspec

from loom.agent.session import LocalSession
from loom.cli.approving import Permission
from loom.cli.asking import Format, choose_tools, face_for, model_for, tell, warn
from loom.cli.attachments import Said, read_message, shortened
from loom.cli.choosing import LATEST, Place, open_place, stored_session
from loom.cli.completing import complete_models, complete_sessions
from loom.cli.exits import exit_code
from loom.cli.faces import JsonFace, Outcome
from loom.cli.footer import footer, switch_preview
from loom.cli.terminal import Ink, is_plain, say, sentence
from loom.cli.turns import speak
from loom.errors import ContentError, LoomError
from loom.models import Usage
from loom.runtime import Runtime


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, understood."""

    words: tuple[str, ...]
    attached: tuple[str, ...]
    model: str
    place: Place
    system: str
    tools: tuple[str, ...]
    permission: Permission
    form: Format
    dry_run: bool
    full: bool
    streams: bool
    plain: bool
    shows_reasoning: bool


@click.command("ask")
@click.argument("words", nargs=-1, metavar="[QUESTION] [FILE]...")
@click.option(
    "-a",
    "--attach",
    "attached",
    multiple=True,
    metavar="FILE",
    help="A file, FILE#3-7 for pages, an address, or - for stdin.",
)
@click.option("-i", "--image", "images", multiple=True, hidden=True)
@click.option("-m", "--model", default="", shell_complete=complete_models, help="platform/name, or a configured name.")
@click.option("-c", "--continue", "last_here", is_flag=True, help="Go on with the last session of this folder.")
@click.option(
    "-r",
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    default="",
    metavar="[ID|N|latest]",
    shell_complete=complete_sessions,
    help="Go on with a session: its id, its number in `loom sessions`, its title.",
)
@click.option("--from", "node", default="", metavar="NODE", help="Go on from this message; nothing is overwritten.")
@click.option("--fork", is_flag=True, help="Go on in a new session and leave the old one as it is.")
@click.option("-s", "--system", default="", help="The system prompt of a new session.")
@click.option(
    "-T",
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME",
    help="A tool that the model may call; also all, safe (the default: those that only read) or none.",
)
@click.option(
    "--permission",
    type=click.Choice(["ask", "auto", "deny"]),
    default="ask",
    show_default=True,
    help="What happens when a tool needs your word. Without a terminal, ask means deny.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option(
    "--output-format", "form", type=click.Choice(["text", "json", "stream-json"]), default="text", show_default=True
)
@click.option("--dry-run", is_flag=True, help="Show the request instead of sending it; media as digest and size.")
@click.option("--full", is_flag=True, help="With --dry-run: with all media, exactly as on the wire.")
@click.option("--no-stream", is_flag=True, help="Write the answer when it is whole.")
@click.option("--plain", is_flag=True, help="No colours, boxes or pictures (also LOOM_PLAIN=1).")
@click.option("-R", "--hide-reasoning", is_flag=True, help="Do not show the model's reasoning on stderr.")
@click.option("-p", "--print", "printing", is_flag=True, hidden=True)
def command(words: tuple[str, ...], attached: tuple[str, ...], images: tuple[str, ...], **given: Any) -> int:
    """Ask a model. `loom "QUESTION" FILE...` is the same.

    A word that names an existing file is an attachment. Text on stdin goes before the question; a picture or a
    document on stdin is attached. The answer goes to stdout, everything about it to stderr.
    """
    place = Place(last_here=given["last_here"], resume=given["resume"], node=given["node"], fork=given["fork"])
    asked = Asked(
        words=words,
        attached=(*attached, *images),
        model=given["model"],
        place=place,
        system=given["system"],
        tools=given["tools"],
        permission=given["permission"],
        form="json" if given["as_json"] else given["form"],
        dry_run=given["dry_run"],
        full=given["full"],
        streams=not given["no_stream"],
        plain=given["plain"] or is_plain(),
        shows_reasoning=not given["hide_reasoning"],
    )
    return asyncio.run(_ask(asked))


async def _ask(asked: Asked) -> int:
    try:
        async with Runtime.open() as runtime:
            said = read_message(asked.words, asked.attached, runtime.config.media_limits())
            if not said.content:
                raise ContentError(
                    "there is nothing to ask.", hint='Say something: loom "what is wrong here?" -a login.png'
                )
            if asked.dry_run:
                from loom.cli.dry_run import show_request

                await show_request(runtime, asked, said)
                return 0
            outcome = await _turn(runtime, asked, said)
    except LoomError as error:
        if asked.form == "text":
            raise
        # A program that asked for JSON gets JSON, also where nothing could be asked.
        await JsonFace().finish(Outcome(session="", model=asked.model, error=error))
        return exit_code(error)
    if outcome.error is None:
        return 0
    if asked.form == "text":
        say(sentence(outcome.error))
    return exit_code(outcome.error)


async def _is_other(runtime: Runtime, asked: Asked) -> bool:
    """Whether the model is not the one that the session was asked last."""
    stored = await stored_session(runtime, asked.place)
    return runtime.model(asked.model).reference != runtime.model(stored.model).reference


async def _preview(runtime: Runtime, session: LocalSession, model: str) -> None:
    """A switch is never silent: what the other model will be shown of the past."""
    if await session.path():
        (receipt,) = await session.plan()
        usd = runtime.cost(runtime.model(model), Usage(input_tokens=receipt.totals.tokens))
        click.echo(switch_preview(receipt, usd), err=True)


async def _turn(runtime: Runtime, asked: Asked, said: Said) -> Outcome:
    await choose_tools(runtime, asked.tools, default="safe")
    ingested = await runtime.ingest(*said.content)
    blocks, notices = shortened(ingested.blocks, runtime.config.documents.pages_per_read)
    notices = [*ingested.notices, *notices]
    model = await model_for(runtime, asked.model) if asked.place.is_new else asked.model
    switches = bool(asked.model) and not asked.place.is_new and await _is_other(runtime, asked)
    session = await open_place(runtime, asked.place, model=model, system=asked.system, title=said.title)
    warn(runtime)
    if asked.form == "text":
        tell(notices)
        if switches:
            await _preview(runtime, session, asked.model)
    face = face_for(
        runtime, asked.form, streams=asked.streams, shows_reasoning=asked.shows_reasoning, plain=asked.plain
    )
    is_shown = asked.form == "text" and sys.stdout.isatty()
    outcome = await speak(
        runtime,
        session,
        blocks,
        face,
        permission=asked.permission,
        notices=notices,
        priced=is_shown or asked.form != "text",
    )
    if is_shown and not outcome.error:
        hint = "" if not asked.place.is_new else "loom -c to go on"
        click.echo(Ink(sys.stdout).dim(footer(outcome, hint=hint)))
    return outcome
