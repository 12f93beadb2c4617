"""`loom context`, `wire` and `prompt`: the next request as a table or as its body, and the system prompt of a
session."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from loom.api_types import OverrideChoice
from loom.cli.models import service_without_key
from loom.cli.shared.attachments import MessageInput, ingest_content
from loom.cli.shared.exit_codes import exit_code
from loom.cli.shared.options import complete_models
from loom.cli.shared.plan import (
    CompileSource,
    choose_renditions,
    compile_session,
    compile_source,
    compile_with_estimates,
    estimate_lines,
    key_of,
    override_name,
)
from loom.cli.shared.session_options import choose_tools, print_notices, print_warnings, target_session
from loom.cli.shared.terminal import GLYPHS, clip, money_label, one_line, print_line, sentence, tokens_label
from loom.compile import cost
from loom.compile.assemble import ADDED_CONTINUE
from loom.compile.policy import DetachedMessage as Placed
from loom.compile.request import NextRequest, Snapshot
from loom.compile.trim import UNLIMITED
from loom.config import Config
from loom.content.blocks import DocumentBlock, ToolResult
from loom.content.media import size_label
from loom.content.messages import Message
from loom.errors import ConfigError, LoomError
from loom.estimates import estimate_label
from loom.models import Model
from loom.prompt import Receipt, ReceiptRow
from loom.providers.http import WIRES
from loom.providers.media_body import MediaBody, elide_media
from loom.runtime import Runtime
from loom.runtime.agents import agent_tools, apply_vision, find_agent
from loom.runtime.attachments import limit_pages
from loom.runtime.fetched_file import fetch_file

if TYPE_CHECKING:
    from loom.cli.ask import AskOptions
from loom.cli.shared.exit_codes import OK
from loom.cli.shared.terminal import safe_text

_LABEL_WIDTH = 54
_CELL_WIDTH = 22
_CHOICES: Final[tuple[tuple[str, OverrideChoice], ...]] = (
    ("pinned", "full"),
    ("hidden", "omitted"),
    ("restored", "auto"),
)
_WHO = {"user": "you", "assistant": "model", "tool": "tool"}


@click.command("context")
@click.argument("source", metavar="[FILE|SESSION]", default="")
@click.option(
    "-m",
    "--model",
    "references",
    default="",
    shell_complete=complete_models,
    help="One model or several: a,b. Default: the session's model.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the receipts as JSON lines.")
@click.option("--reasons", is_flag=True, help="Show the reason for every block.")
@click.option("--pin", "pinned", multiple=True, metavar="BLOCK", help="Always send it in full, regardless of age.")
@click.option("--hide", "hidden", multiple=True, metavar="BLOCK", help="Do not send it; it stays stored.")
@click.option(
    "--restore", "restored", multiple=True, metavar="BLOCK", help="Clear --pin and --hide: use the policy again."
)
def context_command(source: str, references: str, as_json: bool, reasons: bool, **chosen: tuple[str, ...]) -> None:
    """Show what the next request would contain, for one model or several. Nothing is sent.

    Default: the last session of this folder. ● full  ◐ low  ▤ pages  ○ text  ✕ omitted

    A BLOCK is named by the number in front of it, or by its file's name.
    """
    wishes: dict[str, OverrideChoice] = {}
    for option, choice in _CHOICES:
        wishes |= dict.fromkeys(chosen[option], choice)
    if wishes and Path(source).is_file():
        raise ConfigError("Overrides need a session, not a file.", hint="Import it first: loom import FILE.")
    asyncio.run(_context(source, references, as_json, reasons, wishes))


async def _context(
    source: str, references: str, as_json: bool, reasons: bool, wishes: dict[str, OverrideChoice]
) -> None:
    if wishes:
        source = await choose_renditions(source, wishes)
    async with compile_source(source) as found:
        chosen = await found.models(references or found.model or "spark")
        await print_table(found, chosen, as_json=as_json, reasons=reasons)


async def print_table(
    found: CompileSource, chosen: list[Model], *, as_json: bool = False, reasons: bool = False
) -> None:
    requests = await compile_with_estimates(found, chosen)
    receipts = [request.receipt for request in requests]
    if as_json:
        for receipt in receipts:
            rows = [
                {"place": key_of(row), "key": override_name(found, row), **msgspec.to_builtins(row)}
                for row in receipt.rows
            ]
            click.echo(msgspec.json.encode({**msgspec.to_builtins(receipt), "rows": rows}))
        return
    turn = sum(placed.message.role == "user" for placed in found.path)
    title = f'next request of "{one_line(found.title, 24)}" (after turn {turn})' if found.title else "this request"
    click.echo(table(found, requests, chosen, title=title, reasons=reasons))
    for line in (*_keys_needed(chosen, found.config), *estimate_lines(receipts)):
        click.echo(f"  {line}")
    # This notice will not be true once the next message is written.
    receipt_notices = (
        notice if notice.startswith(receipt.model) else f"{receipt.model}: {notice}"
        for receipt in receipts
        for notice in receipt.notices
        if notice != ADDED_CONTINUE
    )
    for notice in (*found.notices, *receipt_notices):
        print_line(notice)


def table(found: CompileSource, requests: list[NextRequest], chosen: list[Model], *, title: str, reasons: bool) -> str:
    receipts = [request.receipt for request in requests]
    lines = [_line(title, [model.name[: _CELL_WIDTH - 2] for model in chosen])]
    system, tools = requests[0].prompt.system, requests[0].input.tools
    if system:
        lines.append(_line("  system", [tokens_label(_weight(found, system, m)) for m in chosen]))
    if tools:
        specs = "".join(msgspec.json.encode(tool).decode() for tool in tools)
        weights = [
            _weight(found, specs, m) if request.prompt.tools else 0 for m, request in zip(chosen, requests, strict=True)
        ]
        lines.append(_line(f"  tools ×{len(tools)}", [tokens_label(weight) if weight else "-" for weight in weights]))
    pictures = 0
    for rows in zip(*(receipt.rows for receipt in receipts), strict=True):
        pictures += rows[0].kind == "image"
        lines.append(
            _line(
                _label(found, rows[0], pictures),
                [f"{GLYPHS[row.rendition]} {row.rendition:<8}{tokens_label(row.tokens):>6}" for row in rows],
            )
        )
        if reasons:
            lines += [
                f"{'':12}{model.name}: {row.reason}{f' ({row.detail})' if row.detail else ''}"
                for model, row in zip(chosen, rows, strict=True)
                if row.reason
            ]
    lines.append(_line("  total ≈", [_total(receipt) for receipt in receipts]))
    if any(receipt.estimate is not None and receipt.estimate.cached_tokens for receipt in receipts):
        lines.append(_line("  of them cached ≈", [_cached_label(receipt) for receipt in receipts]))
    lines.append(
        _line(
            "  of at most",
            [
                "∞" if receipt.budgets.tokens >= UNLIMITED else tokens_label(receipt.budgets.tokens)
                for receipt in receipts
            ],
        )
    )
    lines.append(_line("  bytes on the wire", [size_label(receipt.totals.wire_bytes) for receipt in receipts]))
    return "\n".join(lines)


def _weight(found: CompileSource, text: str, model: Model) -> int:
    """Return the tokens of `text`, calibrated by the model's answers, as the rows and the total are."""
    return round(
        cost.text_tokens(text, model.tokens)
        * found.snapshot.calibrations.get(model.reference, cost.Calibration()).ratio
    )


def _label(found: CompileSource, row: ReceiptRow, pictures: int) -> str:
    who = _WHO[found.path[row.message].message.role]
    name = f"[Image #{pictures}] {row.label}" if row.kind == "image" else row.label
    if row.kind in ("document", "audio", "video"):
        pages = _pages(found, row)
        name = f"[pages {pages} of {row.label}]" if pages else f"[{row.label}]"
    if row.kind == "thinking":
        name = f"(thinking) {row.label}"
    return f"{key_of(row):>6} {who:<6} {name}"


def _pages(found: CompileSource, row: ReceiptRow) -> str:
    """Return the selected pages of a document; empty if all of it is sent."""
    block = found.path[row.message].message.blocks[row.block]
    if isinstance(block, ToolResult) and row.inner is not None:
        block = block.blocks[row.inner]
    return block.pages if isinstance(block, DocumentBlock) else ""


def _total(receipt: Receipt) -> str:
    usd = receipt.estimate.usd if receipt.estimate is not None else None
    return f"{tokens_label(receipt.totals.tokens)}  {money_label(usd)}"


def _cached_label(receipt: Receipt) -> str:
    cached = receipt.estimate.cached_tokens if receipt.estimate is not None else 0
    return tokens_label(cached) if cached else "-"


def _line(label: str, cells: Sequence[str]) -> str:
    return f"{clip(label, _LABEL_WIDTH - 1):<{_LABEL_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)


def _keys_needed(chosen: list[Model], config: Config) -> list[str]:
    names = {service_without_key(model, config): model.name for model in chosen}
    return [f"{name} needs a key: loom keys set {service}" for service, name in names.items() if service]


@click.command("wire")
@click.argument("sources", metavar="[FILE|SESSION]...", nargs=-1)
@click.option(
    "-m",
    "--model",
    "references",
    required=True,
    shell_complete=complete_models,
    help="platform/name or a configured name; several: a,b,c.",
)
@click.option("--full", is_flag=True, help="Include all media, exactly as sent.")
def wire_command(sources: tuple[str, ...], references: str, full: bool) -> int:
    """Print the exact body for each model, offline and without a key: one JSON object per line.

    Each has "file", "provider", "model", "receipt" and "request". With several files or models, one that cannot be
    compiled has "error" instead; the others are still printed.

    FILE is a conversation: Loom's own JSON, a request body or messages in the style of OpenAI, Anthropic, Gemini or
    Ollama, or a transcript of Claude Code, Codex or llm. Tools and options of a request body are used, and a body in
    the protocol of the model stays unchanged. Default: the last session of this folder. Media are shown as digest
    and size unless --full. What was changed on the way is listed on stderr; `loom context` shows more.
    """
    return asyncio.run(_wire(sources or ("",), references, full))


async def _wire(sources: Sequence[str], references: str, full: bool) -> int:
    names = [name.strip() for name in references.split(",") if name.strip()]
    if len(sources) == len(names) == 1:
        async with compile_source(sources[0]) as found:
            await _wire_one(found, sources[0], names[0], full=full)
        return 0
    code = 0
    for source in sources:
        try:
            async with compile_source(source) as found:
                for name in names:
                    try:
                        await _wire_one(found, source, name, full=full, is_quiet=True)
                    except LoomError as error:
                        code = code or exit_code(error)
                        click.echo(msgspec.json.encode({"file": source, "model": name, "error": sentence(error)}))
        except LoomError as error:
            code = code or exit_code(error)
            click.echo(msgspec.json.encode({"file": source, "error": sentence(error)}))
    return code


async def _wire_one(found: CompileSource, source: str, name: str, *, full: bool, is_quiet: bool = False) -> None:
    model = await found.resolve(name)
    if model.wire not in WIRES:
        raise ConfigError(f"{name} runs inside Loom: it sends no request.", hint="Choose another model.")
    await print_request(found, await found.compile(model), source=source, full=full, is_quiet=is_quiet)


async def print_request(
    found: CompileSource,
    compiled_request: NextRequest,
    *,
    source: str | None = None,
    full: bool,
    is_quiet: bool = False,
) -> None:
    """Print the request as one line of JSON, and the notices on stderr unless `is_quiet`. With a `source`, the line
    contains it and the receipt."""
    model = compiled_request.input.model
    if not is_quiet:
        for notice in (*found.notices, *compiled_request.receipt.notices):
            print_line(notice)
    request: dict[str, Any] = WIRES[model.wire].encode(compiled_request.prompt)
    head: dict[str, Any] = {"provider": model.provider, "model": model.name}
    if source is not None:
        receipt = msgspec.to_builtins(compiled_request.receipt)
        receipt["notices"] = [*found.notices, *receipt["notices"]]
        head = {"file": source, **head, "receipt": receipt}
    if not full:
        click.echo(msgspec.json.encode({**head, "request": elide_media(request)}))
        return
    stdout = sys.stdout.buffer
    stdout.write(msgspec.json.encode(head)[:-1] + b',"request":')
    async for piece in MediaBody(request, found.media):
        stdout.write(piece)
    stdout.write(b"}\n")
    stdout.flush()


async def show_request(runtime: Runtime, asked: AskOptions, question: MessageInput) -> None:
    """Print the request as JSON; for the built-in model, which has no wire format, as a table."""
    tools = await choose_tools(runtime, asked.tools, default="safe")
    agent = find_agent(runtime.config, asked.agent, Path.cwd()) if asked.agent else None
    if agent is not None:
        tools = tuple(agent_tools(agent, runtime.toolbox.available_tools(tools)))
    with runtime.library.draft_media() as scratch:
        found = await ingest_content(question.content, partial(scratch.ingest, fetch=fetch_file), runtime)
        blocks, notices = limit_pages(found.blocks, runtime.config.documents.pages_per_read)
        print_warnings(runtime)
        print_notices([*found.notices, *notices])
        before = await _state_before(runtime, asked, tools)
        message = Message("user", tuple(blocks))

        async def compile_for(model: Model) -> NextRequest:
            return await runtime.library.next_request(
                before.snapshot,
                model,
                tools=tools,
                draft=(message,),
                renditions=scratch.renditions,
                sampling=asked.sampling,
            )

        now = CompileSource(
            title=before.title,
            model=before.model,
            snapshot=msgspec.structs.replace(before.snapshot, path=(*before.snapshot.path, Placed("draft", message))),
            resolve=runtime.models.resolve_live,
            compile=compile_for,
            media=scratch.renditions,
            config=runtime.config,
        )
        reference = asked.model or before.model or await runtime.models.default()
        model = apply_vision(await runtime.models.resolve_live(reference), agent.entry.vision if agent else "auto")
        if model.wire in WIRES:
            (request,) = await compile_with_estimates(now, [model])
            await print_request(now, request, full=asked.full)
            if request.receipt.estimate is not None:
                print_line(f"next request: {estimate_label(request.receipt.estimate)}")
            for line in estimate_lines([request.receipt]):
                print_line(line)
        else:
            await print_table(now, [model], as_json=asked.form == "json")


class _PlannedSession(msgspec.Struct, frozen=True):
    title: str
    model: str
    snapshot: Snapshot


async def _state_before(runtime: Runtime, asked: AskOptions, tools: Sequence[str] | None) -> _PlannedSession:
    """Return the state before the message: the session's history, or only the system prompt of a new session."""
    if not asked.place.is_new:
        view = await target_session(runtime.library, asked.place)
        head = (await runtime.library.find_message(asked.place.node)).node if asked.place.node else ""
        found = await compile_session(runtime, view, head=head, tools=tools)
        return _PlannedSession(found.title, found.model, found.snapshot)
    system = await runtime.sessions.system_for(asked.system, Path.cwd(), tools=tools, agent=asked.agent)
    return _PlannedSession("", "", Snapshot(system=system))


@click.command("prompt")
@click.option("--agent", default="", metavar="NAME", help="An agent: [agents.NAME], or a file in .claude/agents.")
@click.option("-T", "--tool", "tools", multiple=True, metavar="NAME", help="As for `loom ask`. Default: all.")
def prompt_command(agent: str, tools: tuple[str, ...]) -> int:
    """Print the system prompt of a new session in this folder.

    It contains the default prompt or that of the agent, what `prompt.append` adds, and AGENTS.md. To replace the
    default prompt set `prompt.system`; to leave it out set `prompt.default = false`.
    """
    return asyncio.run(_print_prompt(agent, tools))


async def _print_prompt(agent: str, tools: tuple[str, ...]) -> int:
    async with Runtime.open(tools="all") as runtime:
        chosen = await choose_tools(runtime, tools, default="all")
        click.echo(safe_text(await runtime.sessions.system_for("", Path.cwd(), tools=chosen, agent=agent)))
    return OK
