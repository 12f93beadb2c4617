"""Clients that others generate from the OpenAPI document compile, and work."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemon.running import TOKEN, node_modules, serving
from loom.daemon.routes import document
from loom.testing import memory_runtime

PROGRAM = """
import type { paths, components } from "./schema";

type Created = paths["/v1/sessions"]["post"]["responses"]["201"]["content"]["application/json"];
type Page = paths["/v1/sessions"]["get"]["responses"]["200"]["content"]["application/json"];
type Body = NonNullable<paths["/v1/sessions"]["post"]["requestBody"]>["content"]["application/json"];
type Problem = components["schemas"]["ProblemBody"];

const [url, token] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
const body: Body = { title: "from a generated client" };
const posted = await fetch(`${url}/v1/sessions`, { method: "POST", headers, body: JSON.stringify(body) });
const made = (await posted.json()) as Created;
const page = (await (await fetch(`${url}/v1/sessions`, { headers })).json()) as Page;
const problem = (await (await fetch(`${url}/v1/sessions/${made.id}/nodes/x/children`, { headers })).json()) as Problem;
const ids = page.sessions.map((one) => one.id === made.id);
console.log(JSON.stringify({ title: made.title, ids, code: problem.code }));
"""


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with memory_runtime({"model": "loom/spark"}) as runtime, serving(runtime) as daemon:
        yield daemon.url


def written(folder: Path) -> Path:
    file = folder / "openapi.json"
    file.write_text(json.dumps(document()), "utf-8")
    return file


async def run(*command: object, cwd: Path) -> str:
    done = await asyncio.to_thread(
        subprocess.run, [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout


async def test_a_client_by_openapi_python_client_imports_and_talks_to_the_daemon(url: str, tmp_path: Path):
    generator = Path(sys.executable).with_name("openapi-python-client")
    target = tmp_path / "loom_generated"
    await run(
        *(generator, "generate", "--path", written(tmp_path), "--meta", "none", "--output-path", target), cwd=tmp_path
    )
    await run(sys.executable, "-W", "error", "-m", "compileall", "-q", target, cwd=tmp_path)
    sys.path.insert(0, str(tmp_path))
    try:
        client = importlib.import_module("loom_generated").AuthenticatedClient(base_url=url, token=TOKEN)
        models = importlib.import_module("loom_generated.models")
        create = importlib.import_module("loom_generated.api.default.post_v1_sessions")
        listed = importlib.import_module("loom_generated.api.default.get_v1_sessions")
        async with client:
            made = await create.asyncio(client=client, body=models.NewSession(title="from a generated client"))
            page = await listed.asyncio(client=client)
        assert made.title == "from a generated client"
        assert [session.id for session in page.sessions] == [made.id]
    finally:
        sys.path.remove(str(tmp_path))


async def test_types_by_openapi_typescript_compile_and_a_program_with_them_runs(url: str, tmp_path: Path):
    modules = node_modules()
    written(tmp_path)
    generator = modules / "openapi-typescript/bin/cli.js"
    # Fields with a default may be left out of a request.
    await run("node", generator, "openapi.json", "--default-non-nullable=false", "-o", "schema.ts", cwd=tmp_path)
    (tmp_path / "program.mts").write_text(PROGRAM, "utf-8")
    options = ("--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")
    lib = ("--lib", "es2022,dom", "--outDir", "out", "--skipLibCheck")
    (tmp_path / "process.d.ts").write_text("declare const process: { argv: string[] };\n", "utf-8")
    await run(*("node", modules / "typescript/bin/tsc", *options, *lib, "program.mts", "process.d.ts"), cwd=tmp_path)
    said = json.loads(await run("node", tmp_path / "out" / "program.mjs", url, TOKEN, cwd=tmp_path))
    assert said == {"title": "from a generated client", "ids": [True], "code": "store.not_found"}
