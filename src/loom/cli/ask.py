"""`loom ask`, which is also `loom "…"`: one message, one answer or several, and a session to go on from."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from loom.agent.session import LocalSession
from loom.cli.advice import advice
from loom.cli.asking import (
    Format,
    choose_tools,
    face_for,
    model_asked,
    model_for,
    stored_key,
    taken_in,
    tell,
    templated,
    use_key,
    warn,
)
from loom.cli.attachments import Said, attachment, named_files, read_message
from loom.cli.choosing import open_place, stored_session
from loom.cli.daemons import voice
from loom.cli.exits import exit_code
from loom.cli.extracting import CodeFace
from loom.cli.faces import Face, JsonFace, Outcome, StreamJsonFace
from loom.cli.footer import footer, switch_preview, usage_line
from loom.cli.left_open import settle
from loom.cli.options import Speaking, speaking_of, speaking_options
from loom.cli.preparing import declared, hinting, prepared
from loom.cli.progress import Progress
from loom.cli.templates import Template, save_template
from loom.cli.terminal import Ink, say, sentence
from loom.cli.turns import speak
from loom.client import RemoteSession
from loom.config import load_config
from loom.content.blocks import ContentBlock
from loom.content.messages import text_of
from loom.errors import ContentError, LoomError
from loom.models import Usage
from loom.runtime import Runtime

_MOST_ANSWERS = 20


class Asked(Speaking, frozen=True, kw_only=True):
    """The command line, understood."""

    words: tuple[str, ...]
    attached: tuple[str, ...]
    declared: tuple[tuple[str, str], ...] = ()
    form: Format = "text"
    dry_run: bool = False
    full: bool = False
    streams: bool = True
    extracts: Literal["", "first", "last"] = ""
    shows_usage: bool = False
    answers: int = 1


@click.command("ask")
@click.argument("words", nargs=-1, metavar="[QUESTION] [FILE]...")
@click.option(
    "-a",
    "--attach",
    "attached",
    multiple=True,
    metavar="FILE",
    help="A file, FILE#3-7 for pages, an address, or - (and -#3-7) for stdin.",
)
@click.option(
    "--at",
    "declared",
    nargs=2,
    multiple=True,
    metavar="FILE MIME",
    help="A file and what it should be; its bytes decide, and it is said where they differ.",
)
@click.option("-i", "--image", "images", multiple=True, hidden=True)
@speaking_options(tools="safe")
@click.option(
    "-n",
    "answers",
    type=click.IntRange(1, _MOST_ANSWERS),
    default=1,
    metavar="N",
    help="So many answers, beside each other in the tree.",
)
@click.option("-x", "--extract", is_flag=True, help="Only the first block of code of the answer.")
@click.option("--xl", "--extract-last", "extract_last", is_flag=True, help="Only the last block of code.")
@click.option("-u", "--usage", is_flag=True, help="Say on stderr how many tokens it took.")
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option(
    "--output-format", "form", type=click.Choice(["text", "json", "stream-json"]), default="text", show_default=True
)
@click.option("--dry-run", is_flag=True, help="Show the request instead of sending it; media as digest and size.")
@click.option("--full", is_flag=True, help="With --dry-run: with all media, exactly as on the wire.")
@click.option("--no-stream", is_flag=True, help="Write the answer when it is whole.")
@click.option("--save", default="", metavar="NAME", help="Keep this as a template for -t, and ask nothing.")
@click.option("-p", "--print", "printing", is_flag=True, hidden=True)
def command(words: tuple[str, ...], attached: tuple[str, ...], images: tuple[str, ...], **given: Any) -> int:
    """Ask a model. `loom "QUESTION" FILE...` is the same.

    A word that names an existing file is an attachment. Text on stdin goes before the question; a picture or a
    document on stdin is attached. The answer goes to stdout, everything about it to stderr.
    """
    form: Format = "json" if given["as_json"] else given["form"]
    try:
        asked = Asked(
            words=words,
            attached=(*attached, *images, *(name for name, _ in given["declared"])),
            declared=given["declared"],
            form=form,
            dry_run=given["dry_run"],
            full=given["full"],
            streams=not given["no_stream"],
            extracts="last" if given["extract_last"] else "first" if given["extract"] else "",
            shows_usage=given["usage"],
            answers=given["answers"],
            **speaking_of(given),
        )
        return _save(given["save"], asked) if given["save"] else asyncio.run(_ask(asked))
    except LoomError as error:
        if form == "text":
            raise
        # A program that asked for JSON gets JSON, also where nothing could be asked.
        face = StreamJsonFace() if form == "stream-json" else JsonFace()
        asyncio.run(face.finish(Outcome(session="", model=given["model"], error=error)))
        return exit_code(error)


def _save(name: str, asked: Asked) -> int:
    said, files = named_files(asked.words)
    attached = (*files, *asked.attached)
    for item in attached:
        attachment(item)
    template = Template(
        prompt=" ".join(said) or asked.template.prompt,
        system=asked.system or asked.template.system,
        model=asked.model,
        tools=asked.tools,
        attach=tuple(item if item.startswith("http") else str(Path(item).absolute()) for item in attached)
        or asked.template.attach,
        params={**asked.template.params, **dict(asked.params)},
        context=asked.template.context,
        images=asked.template.images,
        documents=asked.template.documents,
    )
    if template == Template():
        raise ContentError("there is nothing to keep.", hint='Say it: loom "Summarise $input." --save short')
    file = save_template(name, template)
    click.echo(f"kept as {file.stem}: loom -t {file.stem}", err=True)
    return 0


async def _ask(asked: Asked) -> int:
    async with Runtime.open(load_config(flags=asked.flags)) as runtime:
        said = read_message(asked.words, (*asked.template.attach, *asked.attached), runtime.config.media_limits())
        said, system = templated(asked, said)
        if not said.content:
            raise ContentError(
                "there is nothing to ask.", hint='Say something: loom "what is wrong here?" -a login.png'
            )
        asked = msgspec.structs.replace(asked, system=system, model=await model_asked(runtime, asked))
        if asked.dry_run:
            from loom.cli.dry_run import show_request

            with hinting(asked.wishes):
                files = await prepared(said.files, asked.wishes, runtime)
                await show_request(runtime, asked, msgspec.structs.replace(said, files=files))
            return 0
        async with Progress(plain=asked.plain) as progress:
            outcome = await _turns(runtime, asked, said, progress)
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


async def _turns(runtime: Runtime, asked: Asked, said: Said, progress: Progress) -> Outcome:
    key = stored_key(runtime, asked)  # before anything is written: a wrong name leaves no session behind
    await settle(runtime, asked, asked.place)
    tools = await choose_tools(runtime, asked.tools, default="safe")
    blocks, notices = await taken_in(runtime, asked, said.files, said.spoken, progress)
    notices = [*declared(asked.declared), *notices]
    model = await model_for(runtime, asked.model) if asked.place.is_new else asked.model
    switches = bool(asked.model) and not asked.place.is_new and await _is_other(runtime, asked)
    session = await open_place(runtime, asked.place, model=model, system=asked.system, title=said.title, tools=tools)
    use_key(runtime, asked, key, (await runtime.sessions.get(session.id)).model)
    warn(runtime)
    if asked.form == "text":
        tell(notices)
        if switches:
            await _preview(runtime, session, asked.model)
    async with voice(runtime, asked, session, tools) as speaker:
        outcome = await _answer(runtime, asked, speaker, blocks, notices=notices, progress=progress)
        for number in range(2, asked.answers + 1):
            if outcome.error is not None:
                break
            if asked.form == "text" and not sys.stdout.isatty():
                click.echo("\n---\n")
            outcome = await _answer(runtime, asked, speaker, None, progress=progress, number=number)
    return outcome


async def _answer(
    runtime: Runtime,
    asked: Asked,
    session: LocalSession | RemoteSession,
    blocks: list[ContentBlock] | None,
    *,
    progress: Progress,
    notices: Sequence[str] = (),
    number: int = 1,
) -> Outcome:
    """One answer; without blocks, another one to what was said last."""
    is_shown = asked.form == "text" and sys.stdout.isatty() and not asked.extracts
    outcome = await speak(
        runtime,
        session,
        session.again() if blocks is None else session.stream(*blocks),
        _face(runtime, asked),
        said="" if blocks is None else "\n".join(text_of(block) for block in blocks),
        permission=asked.permission,
        notices=notices,
        priced=is_shown or asked.shows_usage or asked.form != "text",
        shows_reasoning=asked.shows_reasoning,
        progress=progress,
        advise=partial(advice, runtime, blocks or ()) if asked.form == "text" else None,
    )
    if is_shown and not outcome.error:
        of_several = f"answer {number} of {asked.answers}" if asked.answers > 1 else ""
        hint = of_several or ("loom -c to go on" if asked.place.is_new else "")
        click.echo(Ink(sys.stdout).dim(footer(outcome, hint=hint)))
    if asked.shows_usage and asked.form == "text":
        click.echo(usage_line(outcome), err=True)
    return outcome


def _face(runtime: Runtime, asked: Asked) -> Face:
    if asked.extracts and asked.form == "text":
        return CodeFace(last=asked.extracts == "last", shows_reasoning=asked.shows_reasoning)
    return face_for(
        runtime, asked.form, streams=asked.streams, shows_reasoning=asked.shows_reasoning, plain=asked.plain
    )
