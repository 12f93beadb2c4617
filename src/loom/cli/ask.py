"""`loom ask`, which is also `loom "…"`: one message, one answer or several, and a session to continue."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from loom.cli.shared.attachments import (
    MessageInput,
    add_password_hint,
    confirm_mentions,
    named_files,
    prepare_files,
    read_message,
    type_notices,
)
from loom.cli.shared.daemon_lookup import open_session
from loom.cli.shared.exit_codes import exit_code
from loom.cli.shared.options import MessageOptions, message_options, message_options_from
from loom.cli.shared.renderers import (
    CodeRenderer,
    JsonRenderer,
    OutputRenderer,
    StreamJsonRenderer,
    TurnOutcome,
    TurnRenderer,
    footer,
    media_hints,
    switch_preview,
    usage_line,
)
from loom.cli.shared.session_options import (
    PLAN_MODE_NOTICE,
    OutputFormat,
    apply_template,
    choose_tools,
    ingest_input,
    model_for,
    open_target,
    print_notices,
    print_warnings,
    read_schema,
    renderer_for,
    requested_model,
    stored_key,
    target_session,
    use_key,
)
from loom.cli.shared.terminal import Colors, ProgressLine, print_line, sentence
from loom.cli.shared.turns import RuntimeHost, answer_pending, run_turn
from loom.cli.trust import ask_about_folder
from loom.client import RemoteSession
from loom.config import load_config
from loom.config.templates import Template, save_template
from loom.content.blocks import ContentBlock
from loom.content.messages import text_of
from loom.errors import ContentError, LoomError
from loom.runtime import Runtime
from loom.runtime.attachments import attachment
from loom.runtime.session import LocalSession
from loom.sampling import Sampling
from loom.tools.workspace import local_workspace, workspace_notice

_MOST_ANSWERS = 20


class AskOptions(MessageOptions, frozen=True, kw_only=True):
    """The parsed command line."""

    words: tuple[str, ...]
    attached: tuple[str, ...]
    declared: tuple[tuple[str, str], ...] = ()
    form: OutputFormat = "text"
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
    help="A file, FILE#3-7 for pages, a URL, or - (also -#3-7) for stdin.",
)
@click.option(
    "--at",
    "declared",
    nargs=2,
    multiple=True,
    metavar="FILE MIME",
    help="A file and its media type. The content decides; a mismatch is reported.",
)
@click.option("-i", "--image", "images", multiple=True, hidden=True)
@message_options(tools="safe")
@click.option(
    "-n",
    "answers",
    type=click.IntRange(1, _MOST_ANSWERS),
    default=1,
    metavar="N",
    help="Generate N alternative answers.",
)
@click.option("-x", "--extract", is_flag=True, help="Print only the first code block of the answer.")
@click.option("--xl", "--extract-last", "extract_last", is_flag=True, help="Print only the last code block.")
@click.option(
    "--schema",
    default="",
    metavar="FILE",
    help="A JSON Schema for the answer; the answer is checked, requested again if it does not match, and printed as"
    " JSON.",
)
@click.option("-u", "--usage", is_flag=True, help="Print the token usage to stderr.")
@click.option("--json", "as_json", is_flag=True, help="Same as --output-format json.")
@click.option(
    "--output-format", "form", type=click.Choice(["text", "json", "stream-json"]), default="text", show_default=True
)
@click.option("--dry-run", is_flag=True, help="Show the request instead of sending it; media as digest and size.")
@click.option("--full", is_flag=True, help="With --dry-run: include all media, exactly as sent.")
@click.option("--no-stream", is_flag=True, help="Print the answer when it is complete.")
@click.option(
    "--save", default="", metavar="NAME", help="Save the prompt and options as a template for -t; send nothing."
)
@click.option("-p", "--print", "printing", is_flag=True, hidden=True)
def ask_command(words: tuple[str, ...], attached: tuple[str, ...], images: tuple[str, ...], **given: Any) -> int:
    """Ask a model. `loom "QUESTION" FILE...` is the same.

    A word that names an existing file is an attachment. Text on stdin goes before the question; an image or a
    document on stdin is attached. The answer goes to stdout, everything else to stderr.
    """
    form: OutputFormat = "json" if given["as_json"] else given["form"]
    try:
        asked = AskOptions(
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
            **message_options_from(given),
        )
        if given["schema"]:
            sampling = asked.sampling.override(Sampling(output_schema=read_schema(given["schema"])))
            asked = msgspec.structs.replace(asked, sampling=sampling)
        if given["save"]:
            return _save(given["save"], asked)
        ask_about_folder()
        return asyncio.run(_ask(asked))
    except LoomError as error:
        if form == "text":
            raise
        # A program that requests JSON gets JSON, even if it fails before the turn starts.
        face = StreamJsonRenderer() if form == "stream-json" else JsonRenderer()
        asyncio.run(face.finish(TurnOutcome(session="", model=given["model"], error=error)))
        return exit_code(error)


def _save(name: str, asked: AskOptions) -> int:
    texts, files = named_files(asked.words)
    attached = (*files, *asked.attached)
    for item in attached:
        attachment(item)
    given = asked.template or Template()
    template = Template(
        prompt=" ".join(texts) or given.prompt,
        system=asked.system or given.system,
        model=asked.model,
        tools=asked.tools,
        attach=tuple(item if item.startswith("http") else str(Path(item).absolute()) for item in attached)
        or given.attach,
        params={**given.params, **dict(asked.params)},
        context=given.context,
        images=given.images,
        documents=given.documents,
    )
    if template == Template():
        raise ContentError("Nothing to save.", hint='Example: loom "Summarize $input." --save short')
    file = save_template(name, template)
    click.echo(f"Saved as {file.stem}: loom -t {file.stem}", err=True)
    return 0


async def _ask(asked: AskOptions) -> int:
    async with Runtime.open(load_config(flags=asked.flags), tools="all") as runtime:
        attached = (*(asked.template.attach if asked.template is not None else ()), *asked.attached)
        message = read_message(asked.words, attached, runtime.config.media_limits())
        message, system = apply_template(asked, message)
        if not message.content:
            raise ContentError("No question given.", hint='Example: loom "what is wrong here?" -a login.png')
        asked = msgspec.structs.replace(asked, system=system, model=await requested_model(runtime, asked))
        if asked.dry_run:
            from loom.cli.context import show_request

            with add_password_hint(asked.wishes):
                files = await prepare_files(message.files, asked.wishes, runtime)
                await show_request(runtime, asked, msgspec.structs.replace(message, files=files))
            return 0
        async with ProgressLine(plain=asked.plain) as progress:
            outcome = await _turns(runtime, asked, message, progress)
        await runtime.upkeep.run_if_due()
    if outcome.error is None:
        return 0
    if asked.form == "text":
        print_line(sentence(outcome.error))
    return exit_code(outcome.error)


async def _changes_model(runtime: Runtime, asked: AskOptions) -> bool:
    """Return whether the requested model differs from the session's current one."""
    view = await target_session(runtime.library, asked.place)
    return runtime.models.resolve(asked.model).reference != runtime.models.resolve(view.model).reference


async def _preview_switch(runtime: Runtime, asked: AskOptions) -> str:
    """Return how the history is rendered for the other model, and what it costs: a switch of models is never silent.
    Call it before the session uses that model; return nothing if there is no history."""
    view = await target_session(runtime.library, asked.place)
    session = await runtime.library.open(view.id)
    if not await session.path():
        return ""
    (receipt,) = await session.plan([asked.model])
    return switch_preview(receipt)


async def _turns(runtime: Runtime, asked: AskOptions, message: MessageInput, progress: ProgressLine) -> TurnOutcome:
    key = stored_key(runtime, asked)  # before anything is written: a wrong name must not create a session
    place = "" if asked.place.is_new else (await target_session(runtime.library, asked.place)).workspace
    confirm_mentions(message.words, local_workspace(place))
    await answer_pending(runtime, asked, asked.place)
    tools = await choose_tools(runtime, asked.tools, default="safe")
    blocks, notices = await ingest_input(runtime, asked, message.files, message.contents, progress)
    notices = [*filter(None, [workspace_notice(place)]), *type_notices(asked.declared), *notices]
    model = await model_for(runtime, asked.model) if asked.place.is_new else asked.model
    switches = bool(asked.model) and not asked.place.is_new and await _changes_model(runtime, asked)
    preview = await _preview_switch(runtime, asked) if switches and asked.form == "text" else ""
    session = await open_target(
        runtime, asked.place, model=model, system=asked.system, title=message.title, tools=tools, agent=asked.agent
    )
    view = await session.info()
    use_key(runtime, asked, key, view.model)
    print_warnings(runtime)
    if view.plan_mode and asked.plan_mode is None:
        notices = [*notices, PLAN_MODE_NOTICE]
    if asked.form == "text":
        print_notices(notices)
        if preview:
            click.echo(preview, err=True)
    async with open_session(runtime, asked, session, tools) as speaker:
        if asked.plan_mode not in (None, view.plan_mode):
            await speaker.change(plan_mode=asked.plan_mode)
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
    asked: AskOptions,
    session: LocalSession | RemoteSession,
    blocks: list[ContentBlock] | None,
    *,
    progress: ProgressLine,
    notices: Sequence[str] = (),
    number: int = 1,
) -> TurnOutcome:
    """Run a turn for one answer; without `blocks`, for another answer to the last message."""
    has_schema = asked.sampling.output_schema is not None
    is_shown = asked.form == "text" and sys.stdout.isatty() and not asked.extracts and not has_schema
    outcome = await run_turn(
        RuntimeHost(runtime),
        session,
        session.regenerate(options=asked.sampling)
        if blocks is None
        else session.stream(*blocks, options=asked.sampling),
        _choose_renderer(runtime, asked),
        said="" if blocks is None else "\n".join(text_of(block) for block in blocks),
        permission=asked.permission,
        notices=notices,
        priced=is_shown or asked.shows_usage or asked.form != "text",
        shows_reasoning=asked.shows_reasoning,
        progress=progress,
        advise=partial(media_hints, runtime, blocks or ()) if asked.form == "text" else None,
    )
    if is_shown and not outcome.error:
        of_several = f"answer {number} of {asked.answers}" if asked.answers > 1 else ""
        hint = of_several or ("continue with loom -c" if asked.place.is_new else "")
        click.echo(Colors(sys.stdout).dim(footer(outcome, hint=hint)))
    if asked.shows_usage and asked.form == "text":
        click.echo(usage_line(outcome), err=True)
    return outcome


def _choose_renderer(runtime: Runtime, asked: AskOptions) -> TurnRenderer:
    if asked.sampling.output_schema is not None and asked.form == "text":
        return OutputRenderer(asked.sampling.output_schema, shows_reasoning=asked.shows_reasoning)
    if asked.extracts and asked.form == "text":
        return CodeRenderer(last=asked.extracts == "last", shows_reasoning=asked.shows_reasoning)
    return renderer_for(
        runtime, asked.form, streams=asked.streams, shows_reasoning=asked.shows_reasoning, plain=asked.plain
    )
