"""What a type checker sees of the library: the examples and the narrowing of events, in strict mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

NARROWING = """
from typing import assert_never, assert_type

import loom
from loom.events import ApprovalRequested, Event, TextDelta, ToolFinished


def by_type(event: Event) -> str:
    if event.type == "text":
        assert_type(event, TextDelta)
        return event.text
    if event.type == "approval_requested":
        assert_type(event, ApprovalRequested)
        return event.action
    return ""


def by_match(event: Event) -> str:
    match event:
        case TextDelta(text=text):
            return text
        case ToolFinished(result=result):
            return result.name
        case _:
            return ""


def decide(request: loom.ApprovalRequest) -> loom.Allow | loom.Deny | loom.Ask:
    return loom.Deny("no") if request.tool == "delete" else loom.Allow()


def verdict(found: loom.Allow | loom.Deny | loom.Ask) -> str:
    match found:
        case loom.Allow():
            return "yes"
        case loom.Deny(reason):
            return reason
        case loom.Ask():
            return "?"
        case _:
            assert_never(found)


with loom.Loom(tools=["read_file", by_match], approve=decide) as lm:
    assert_type("".join(lm.session().stream("hi").text()), str)
    assert_type(lm.ask("hi").text, str)
"""


def errors_of(*paths: Path) -> list[str]:
    program = Path(sys.executable).with_name("pyright")
    done = subprocess.run(
        [program, "--outputjson", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(paths)
    return [
        f"{Path(it['file']).name}:{it['range']['start']['line'] + 1}: {it['message']}"
        for it in found["generalDiagnostics"]
    ]


def test_the_examples_and_the_narrowing_of_events_have_no_type_errors(tmp_path: Path) -> None:
    program = tmp_path / "narrowing.py"
    program.write_text(f"# pyright: strict\n{NARROWING}")
    examples = [ROOT / "examples" / path.name for path in sorted((ROOT / "examples").glob("*.py"))]
    assert errors_of(program, *examples) == []
