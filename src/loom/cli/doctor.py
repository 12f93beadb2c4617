"""`loom doctor`: checks the set-up and the store, or a foreign transcript, and repairs what it can."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click
import msgspec

from loom.cli import doctor_checks
from loom.cli.backup import salvage_store
from loom.cli.doctor_checks import Finding
from loom.cli.exit_codes import FAILED, exit_code
from loom.cli.import_ import import_file, import_summary, report
from loom.cli.terminal import print_line, safe_text, sentence
from loom.cli.transcripts import Transcript, read_transcripts
from loom.config import load_config
from loom.content.media import size_label
from loom.content.messages import media_of
from loom.errors import Corrupt, LoomError
from loom.runtime import Runtime
from loom.store.media import open_media
from loom.tools.number_text import count_text

_GLYPHS = {"ok": "✔", "open": "○", "warning": "!", "problem": "✖"}


@click.command("doctor")
@click.argument("transcripts", nargs=-1, metavar="[TRANSCRIPT]...")
@click.option("--fix", is_flag=True, help="Repair what can be repaired; a transcript becomes a session.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def command(transcripts: tuple[str, ...], fix: bool, as_json: bool) -> int:
    """Check the setup and the store. With TRANSCRIPT, check a conversation of another program.

    ✔ works  ○ not installed, with the command that adds it  ! warning  ✖ broken
    """
    if transcripts:
        return asyncio.run(_transcripts(transcripts, fix, as_json))
    return asyncio.run(_set_up(fix, as_json))


async def _set_up(fix: bool, as_json: bool) -> int:
    findings = [doctor_checks.python(), *doctor_checks.configuration(fix=fix)]
    try:
        findings += await salvage_store(load_config(), fix=fix)
        async with Runtime.open() as runtime:
            findings += [
                *await doctor_checks.store(runtime, fix=fix),
                *await doctor_checks.media(runtime),
                *await doctor_checks.models(runtime),
                doctor_checks.sandbox(runtime.config),
                *await doctor_checks.rules(runtime),
                await doctor_checks.daemon(runtime.config),
            ]
    except LoomError as error:
        if isinstance(error, Corrupt):
            step = doctor_checks.BACKUP if fix else "loom doctor --fix saves what can be read in a new store"
            findings.append(Finding("store", "problem", error.message, step))
        else:
            findings.append(Finding("store", "problem", sentence(error)))
    findings += [
        *doctor_checks.formats(),
        *doctor_checks.extras(),
        *doctor_checks.terminal(),
        doctor_checks.clipboard(),
    ]
    for finding in findings:
        click.echo(msgspec.json.encode(finding) if as_json else _row(finding))
    return FAILED if any(finding.state == "problem" for finding in findings) else 0


def _row(finding: Finding) -> str:
    fix = f"  → {finding.fix}" if finding.fix else ""
    return f"{_GLYPHS[finding.state]} {finding.name:<12} {safe_text(finding.text)}{fix}"


async def _transcripts(names: tuple[str, ...], fix: bool, as_json: bool) -> int:
    code = 0
    for name in names:
        try:
            if fix:
                async with Runtime.open() as runtime:
                    for imported in await import_file(runtime, Path(name)):
                        click.echo(msgspec.json.encode(imported) if as_json else report(imported))
            else:
                for found in await _looked_at(Path(name)):
                    click.echo(_diagnosis_json(name, found) if as_json else _diagnosis(name, found))
                    code = code or (FAILED if found.repairs or not found.messages else 0)
        except LoomError as error:
            code = exit_code(error)
            print_line(import_summary(name, error))
    return code


async def _looked_at(file: Path) -> list[Transcript]:
    """Read into a folder that vanishes: looking leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        return await read_transcripts(file, open_media(Path(folder)), limits=load_config().media_limits())


def _diagnosis(name: str, found: Transcript) -> str:
    media = {medium.digest: medium for message in found.messages for medium in media_of(message)}
    size = (
        f", {count_text(len(media), 'medium', 'media')} ({size_label(sum(m.size_bytes for m in media.values()))})"
        if media
        else ""
    )
    head = f"{safe_text(Path(name).name)} ({found.kind}): {count_text(len(found.messages), 'message')}{size}"
    repairs = [f"  ~ {safe_text(notice)}" for notice in found.repairs]
    if not found.messages:
        return "\n".join([f"! {head}, nothing to import", *repairs])
    if not repairs:
        return f"✔ {head}, nothing to repair"
    return "\n".join([f"! {head}", *repairs, f"  → loom doctor --fix {name}"])


def _diagnosis_json(name: str, found: Transcript) -> bytes:
    return msgspec.json.encode(
        {
            "file": Path(name).name,
            "kind": found.kind,
            "messages": len(found.messages),
            "repairs": found.repairs,
        }
    )
