"""Compare Loom's gateway with LiteLLM's proxy, in one run: `python -m benchmarks.gateway.proxy [PART …]`.

rows      how each converts content of an Anthropic request, for a Responses server and a Chat server
bricks    conversations of three turns against servers that enforce their rules
time      to the first byte, above a direct request: 100 KB, streamed, medians of interleaved requests
memory    the peak above idle during a request of 50 MB
streams   200 at once, the gateway on one core

LiteLLM is expected in `.cache/litellm/bin/litellm` (`python -m venv .cache/litellm`, then pip install
'litellm[proxy]'), or at the path in `LITELLM`; without it only Loom is measured. Both have one worker and no key store.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.gateway.contents import IMAGE, compare_bricks, compare_rows, user_message  # noqa: E402  needs the path above
from daemon.hostile import enforcing, noise  # noqa: E402  needs the path above
from flow.far_models import speak  # noqa: E402  needs the path above
from providers.far_side import Reply, Request, far_side  # noqa: E402  needs the path above

LITELLM = Path(os.environ.get("LITELLM", ROOT / ".cache" / "litellm" / "bin" / "litellm"))
ROUNDS = int(os.environ.get("ROUNDS", "60"))
STREAMS = int(os.environ.get("STREAMS", "200"))
STREAM_SECONDS = 120.0
PAUSE_SECONDS = 0.1
MODELS = {
    "responses": ("openai", "gpt-5.5"),
    "chat": ("openai-compatible", "qwen"),
    "claude": ("anthropic", "claude-opus-5"),
}
KEY = "sk-bench-0123456789abcdef"


class Gateway:
    """A running gateway: its address, its process, and the memory and CPU time that it uses."""

    def __init__(self, name: str, url: str, process: subprocess.Popen[bytes]) -> None:
        self.name, self.url, self.process = name, url, process

    @property
    def headers(self) -> dict[str, str]:
        return {"x-api-key": KEY, "authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}

    def peak_mb(self) -> float:
        """Return the peak memory of the process and its children."""
        return sum(_status(pid, "VmHWM") for pid in _process_tree(self.process.pid)) / 1024

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its children."""
        return sum(_cpu_ticks(pid) for pid in _process_tree(self.process.pid)) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self) -> None:
        for pid in _process_tree(self.process.pid):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _process_tree(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _process_tree(int(child))
    return found


def _status(pid: int, key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
    return 0


def _cpu_ticks(pid: int) -> int:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@asynccontextmanager
async def loom(far: str, folder: Path) -> AsyncGenerator[Gateway]:
    port = _free_port()
    config = {
        "models": {
            name: {"provider": platform, "model": model, "base_url": f"{far}/{name}"}
            for name, (platform, model) in MODELS.items()
        },
        "keys": dict.fromkeys(("anthropic", "openai"), "sk-far-away-0123"),
        "gateway": {"keys": {"bench": {"token": KEY}}},
        "server": {"port": port},
    }
    home = folder / "loom"
    home.mkdir()
    lines = ['model = "loom/spark"']
    for section, values in config.items():
        for name, value in values.items():
            lines += _toml(f"{section}.{name}", value) if isinstance(value, dict) else []
        plain = {name: value for name, value in values.items() if not isinstance(value, dict)}
        lines += _toml(section, plain) if plain else []
    (home / "loom.toml").write_text("\n".join(lines))
    environ = {**os.environ, "LOOM_HOME": str(home), "LOOM_OFFLINE": "1", "LOOM_PROMPT__DEFAULT": "false"}
    command = [sys.executable, "-m", "loom.daemon", "--port", str(port)]
    async with _running("Loom", command, environ, port, "/healthz", folder) as found:
        yield found


def _toml(section: str, values: dict[str, Any]) -> list[str]:
    nested = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items() if name not in nested)]
    return lines + [line for name, value in nested.items() for line in _toml(f"{section}.{name}", value)]


@asynccontextmanager
async def litellm(far: str, folder: Path) -> AsyncGenerator[Gateway]:
    port = _free_port()
    providers = {"openai": "openai", "openai-compatible": "hosted_vllm", "anthropic": "anthropic"}
    bases = {"openai": "/v1", "openai-compatible": "", "anthropic": ""}
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"{providers[platform]}/{model}",
                "api_base": f"{far}/{name}{bases[platform]}",
                "api_key": "sk-far-away-0123",
            },
        }
        for name, (platform, model) in MODELS.items()
    ]
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": KEY}}))
    environ = {
        **os.environ,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "DISABLE_AIOHTTP_TRUST_ENV": "True",
    }
    command = [str(LITELLM), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    async with _running("LiteLLM", command, environ, port, "/health/liveliness", folder) as found:
        yield found


def _start(command: list[str], environ: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, env=environ, stdout=file, stderr=file)


@asynccontextmanager
async def _running(
    name: str, command: list[str], environ: dict[str, str], port: int, path: str, folder: Path
) -> AsyncGenerator[Gateway]:
    process = _start(["taskset", "-c", "0", *command], environ, folder / f"{name}.log")
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx2.AsyncClient() as http:
            for _ in range(600):
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended: {(folder / f'{name}.log').read_text()[-2000:]}")
                with contextlib.suppress(httpx2.TransportError):
                    if (await http.get(f"{url}{path}")).status_code == 200:
                        break
                await asyncio.sleep(0.2)
        yield Gateway(name, url, process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


# Time ----------------------------------------------------------------------------------------------------------------


def _agent_request(size: int, model: str, *, turn: int = 0) -> dict[str, Any]:
    """Return a request like an agent's: tools and a history of results, `size` bytes in total."""
    tools = [
        {"name": f"tool_{n}", "description": "d" * 900, "input_schema": {"type": "object", "properties": {}}}
        for n in range(20)
    ]
    messages: list[Any] = [{"role": "user", "content": f"begin {turn}"}]
    number = 0
    while len(json.dumps(messages)) + 20_000 < size:
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_1", "input": {"n": number}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "line of a file\n" * 150}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        number += 1
    return {
        "model": model,
        "max_tokens": 999,
        "stream": True,
        "system": "You code.",
        "tools": tools,
        "messages": messages,
    }


async def _first_byte(http: httpx2.AsyncClient, url: str, body: bytes, headers: dict[str, str]) -> float:
    started, taken = time.perf_counter(), 0.0
    headers = {**headers, "content-type": "application/json"}
    async with http.stream("POST", url, content=body, headers=headers) as answer:
        async for _ in answer.aiter_bytes():
            taken = taken or time.perf_counter() - started
        if answer.status_code != 200 or not taken:
            raise RuntimeError(f"status {answer.status_code}")
    return taken


async def compare_time(gateways: list[Gateway], far: str) -> None:
    print(f"\nTime to the first byte of a streamed answer to 100 KB, {ROUNDS} rounds, ms above a direct request")
    for model, title in (("chat", "Anthropic → Chat"), ("claude", "Anthropic → Anthropic"), ("chat", "new each time")):
        body = _agent_request(100_000, model)
        data = json.dumps(body).encode()
        places = {"direct": f"{far}/{model}/v1/messages", **{it.name: f"{it.url}/v1/messages" for it in gateways}}
        headers = {"direct": {}, **{it.name: it.headers for it in gateways}}
        times: dict[str, list[float]] = {name: [] for name in places}
        begun = {it.name: it.cpu_seconds() for it in gateways}
        async with httpx2.AsyncClient(timeout=60) as http:
            for number in range(ROUNDS + 5):
                for name, url in places.items():
                    # The work of a gateway after its answer must not count for the next one on the same core.
                    await asyncio.sleep(PAUSE_SECONDS)
                    taken = await _first_byte(http, url, data, headers[name])
                    if number >= 5:
                        times[name].append(taken * 1_000)
                # The conversation grows, as an agent's does, or a new one starts.
                if title == "new each time":
                    body = _agent_request(100_000, model, turn=number + 1)
                else:
                    body["messages"] += [
                        {"role": "assistant", "content": [{"type": "text", "text": "fine"}]},
                        {"role": "user", "content": f"message {number}"},
                    ]
                data = json.dumps(body).encode()
        spent = {it.name: (it.cpu_seconds() - begun[it.name]) * 1_000 / (ROUNDS + 5) for it in gateways}
        base = statistics.median(times["direct"])
        parts: list[str] = []
        for name, found in times.items():
            if name != "direct":
                late = sorted(found)[int(len(found) * 0.95)] - base
                above = statistics.median(found) - base
                parts.append(f"{name} +{above:.1f} (p95 +{late:.1f}; processor {spent[name]:.1f} per request)")
        print(f"{title:24} direct {base:.1f}; {'; '.join(parts)}", flush=True)


async def compare_memory(gateways: list[Gateway]) -> None:
    print("\nPeak memory above idle, MB, during a request of 50 MB with ten images")
    image = noise(1_150, 1_060)
    blocks = [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": base64.b64encode(image + bytes([n])).decode(),
            },
        }
        for n in range(10)
    ]
    for gateway in gateways:
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=300) as http:
            small = {"model": "claude", "max_tokens": 9, "messages": user_message(IMAGE)}
            await http.post(f"{gateway.url}/v1/messages", json=small)
            gateway.reset_peak()
            idle = gateway.peak_mb()
            body = json.dumps({"model": "claude", "max_tokens": 9, "messages": user_message(*blocks)}).encode()
            answer = await http.post(
                f"{gateway.url}/v1/messages", content=body, headers={"content-type": "application/json"}
            )
            above, size = gateway.peak_mb() - idle, len(body) / 1e6
            status = answer.status_code
            print(f"{gateway.name:10} {size:.0f} MB: +{above:.0f} (idle {idle:.0f}), status {status}", flush=True)


async def compare_streams(gateways: list[Gateway]) -> None:
    print(f"\n{STREAMS} streams at once, the gateway on one core; each is 20 pieces over a second")
    for gateway in gateways:
        limits = httpx2.Limits(max_connections=STREAMS, max_keepalive_connections=STREAMS)
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=STREAM_SECONDS, limits=limits) as http:
            started = time.perf_counter()
            url = f"{gateway.url}/v1/messages"
            found = await asyncio.gather(*(_stream(http, url, number) for number in range(STREAMS)))
        errors = sum(not good for good, _ in found)
        longest = max(taken for _, taken in found)
        whole = time.perf_counter() - started
        print(f"{gateway.name:10} {errors} errors; all done in {whole:.1f} s, the slowest {longest:.1f} s", flush=True)


async def _stream(http: httpx2.AsyncClient, url: str, number: int) -> tuple[bool, float]:
    """Return whether a stream was complete, and how long it took in seconds."""
    messages = [{"role": "user", "content": f"SLOW question {number}"}]
    body = {"model": "chat", "max_tokens": 99, "stream": True, "messages": messages}
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(STREAM_SECONDS), http.stream("POST", url, json=body) as answer:
            data = b"".join([piece async for piece in answer.aiter_bytes()])
        return answer.status_code == 200 and b"message_stop" in data, time.perf_counter() - begun
    except (httpx2.TransportError, TimeoutError):
        return False, time.perf_counter() - begun


def _slow_chat() -> Reply:
    whole = speak("openai_chat", [f"word {number} " for number in range(20)])
    return Reply(body=whole.body, chunk=max(1, len(whole.body) // 20), pause=0.05)


async def run(parts: list[str]) -> None:
    has_peer = await asyncio.to_thread(LITELLM.exists)
    requests: list[Request] = []
    wires = {"responses": "openai_responses", "chat": "openai_chat", "claude": "anthropic"}

    def answer(request: Request) -> Reply:
        requests.append(request)
        if request.method != "POST":
            return Reply(status=404, content_type="application/json", body=b'{"error": {"message": "not found"}}')
        if b"SLOW" in request.body[:4_000]:
            return _slow_chat()
        model = request.target.lstrip("/").partition("/")[0]
        is_stream = b'"stream":true' in request.body or b'"stream": true' in request.body
        return speak(wires[model], "fine") if is_stream else _complete_answer(wires[model])

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(far_side(answer))
            gateways = [await stack.enter_async_context(loom(server.url, folder))]
            if has_peer:
                gateways.append(await stack.enter_async_context(litellm(server.url, folder)))
            else:
                print(f"LiteLLM is not installed ({LITELLM}); only Loom is measured")
            if "rows" in parts:
                await compare_rows(gateways, requests)
            if "time" in parts:
                await compare_time(gateways, server.url)
            if "streams" in parts:
                await compare_streams(gateways)
            if "memory" in parts:
                await compare_memory(gateways)
        if "bricks" in parts:
            await _run_bricks(folder, has_peer=has_peer)


async def _run_bricks(folder: Path, *, has_peer: bool) -> None:
    async with contextlib.AsyncExitStack() as stack:
        _, rules = await stack.enter_async_context(enforcing())
        names = {"claude": "opus", "chat": "local", "responses": "gpt"}

        def answer(request: Request) -> Reply:
            """Answer by the rules, which know the models by other names."""
            first, _, rest = request.target.lstrip("/").partition("/")
            reply = rules.answer(
                Request(request.method, f"/{names.get(first, first)}/{rest}", request.headers, request.body)
            )
            is_stream = b'"stream":true' in request.body or b'"stream": true' in request.body
            wires = {"claude": "anthropic", "chat": "openai_chat"}
            return reply if is_stream or reply.status != 200 else _complete_answer(wires[first])

        far = await stack.enter_async_context(far_side(answer))
        own = folder / "bricks"
        await asyncio.to_thread(own.mkdir)
        gateways = [await stack.enter_async_context(loom(far.url, own))]
        if has_peer:
            gateways.append(await stack.enter_async_context(litellm(far.url, own)))
        await compare_bricks(gateways)


def _complete_answer(wire: str) -> Reply:
    """Return the same answer for a request that is not streamed."""
    usage = {"input_tokens": 9, "output_tokens": 5, "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    text_item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "fine", "annotations": []}],
    }
    whole = {
        "anthropic": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "fine"}],
            "usage": usage,
        },
        "openai_chat": {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "usage": usage,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
        },
        "openai_responses": {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "status": "completed",
            "output": [text_item],
            "usage": usage,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
    }[wire]
    return Reply(body=json.dumps(whole).encode(), content_type="application/json")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:] or ["rows", "bricks", "time", "streams", "memory"]))
