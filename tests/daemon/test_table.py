"""The table of routes is the API, the OpenAPI document describes it, and the daemon does what the document says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx2
import msgspec

from daemon.asking import new_session, say, upload
from daemon.running import DaemonProcess
from loom.daemon.routes import ROUTES

SEED = "7"
CHECKS = """
[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = ["4xx", "501", "507"]

[[operations]]
include-path-regex = "/(messages|plan)$"
phases.coverage.enabled = false

[[operations]]
include-path = "/v1/media"
include-method = "POST"
checks.negative_data_rejection.enabled = false
"""
"""The coverage of those two, whose bodies hold every kind of block, would be half of all requests. Any bytes are a good
upload where `name` is given."""


def test_the_document_names_every_route_of_the_table_and_no_other(api: httpx2.Client) -> None:
    found = api.get("/openapi.json").json()
    named = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert named == {(row.method, row.path) for row in ROUTES if row.is_listed}
    ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))
    assert found["openapi"] == "3.1.0"


def test_every_reference_of_the_document_leads_somewhere(api: httpx2.Client) -> None:
    found = api.get("/openapi.json").json()
    text = msgspec.json.encode(found).decode()
    wanted = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert wanted <= set(found["components"]["schemas"])


def test_the_page_shows_every_route(api: httpx2.Client) -> None:
    page = api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for row in ROUTES:
        assert not row.is_listed or f"<code>{row.path}</code>" in page.text


def test_whatever_is_sent_nothing_breaks_and_answers_keep_to_the_document(
    house: DaemonProcess, api: httpx2.Client, tmp_path: Path
) -> None:
    """Thousands of good and bad requests, made from the document by schemathesis, for every route but those that change
    the token or never end. What is refused for what it means (a model that is not known) is not a fault."""
    session = new_session(api, title="fuzzed")
    say(api, session, "what is this?")
    upload(api, b"some words\n", "notes.txt")
    (tmp_path / "schemathesis.toml").write_text(CHECKS)
    command = [
        str(Path(sys.executable).with_name("st")),
        "run",
        f"{house.url}/openapi.json",
        *("--header", f"Authorization: Bearer {house.token}"),
        *("--seed", SEED, "--max-examples", "2", "--phases", "coverage,fuzzing", "--request-timeout", "30"),
        *(
            "--exclude-path-regex",
            "rotate|/events|/asyncapi",
        ),
        *("--continue-on-failure", "--no-color", "--workers", "1"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6_000:]
    assert "Traceback" not in house.log()
