"""Whom a newcomer without a key asks: a model server on this machine, if one runs, the one with eyes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.loom_command import Loom

SCRIPT = """
import fcntl, json, os, socket, struct, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

with socket.socket() as plug:  # the namespace begins with its loopback switched off
    fcntl.ioctl(plug, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        lists = {
            "/api/tags": {"models": [{"name": "llama3.2:latest"}, {"name": "llava:latest"}]},
            "/v1/models": {"data": [{"id": "qwen3-vl"}]},
        }
        body = json.dumps(lists.get(self.path, {})).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_request(self, *_): pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run([sys.executable, "-m", "loom.cli.main", "models", "--json"]).returncode)
"""


@pytest.mark.parametrize(
    ("port", "expected", "address"),
    [
        (11434, "ollama/llava:latest", "ollama"),
        (1234, "lm-studio/qwen3-vl", "openai-compatible"),
        (8080, "llama.cpp/qwen3-vl", "openai-compatible"),
        (9999, "loom/spark", "loom"),
    ],
)
def test_a_server_on_this_machine_is_found_at_its_usual_port(tmp_path: Path, port: int, expected: str, address: str):
    loom = Loom(tmp_path, LOOM_MODEL="", LOOM_OFFLINE="0")

    ran = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", SCRIPT, str(port)],
        env={**os.environ, **loom.environ},
        cwd=loom.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert f'"name":"{expected}","reference":"{address}/' in ran.stdout.splitlines()[0]
    assert '"is_default":true' in ran.stdout.splitlines()[0]
