"""The far side of a network: an OpenAI-compatible server whose model answers with the user's own words."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHUNK_CHARACTERS = 40
BILLED = "billed"
"""The model whose requests are billed by their size; those of all others count ten tokens."""


class EchoHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send({"data": [{"id": "echo"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = _last_text(request["messages"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        pieces = [text[at : at + CHUNK_CHARACTERS] for at in range(0, len(text), CHUNK_CHARACTERS)]
        for piece in pieces:
            self._event({"choices": [{"index": 0, "delta": {"content": piece}}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        tokens = len(json.dumps(request["messages"])) // 4 if request["model"] == BILLED else 10
        self._event({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": len(pieces)}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps({'id': 'x', 'model': 'echo', **value})}\n\n".encode())

    def _send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def _last_text(messages: list[dict[str, Any]]) -> str:
    content = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@contextmanager
def echo_server() -> Iterator[str]:
    """Yield the configuration of a model named `echo` that this server answers for."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EchoHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        yield f'\n[models.echo]\nprovider = "compatible"\nmodel = "echo"\nbase_url = "{url}"\n'
        server.shutdown()
        thread.join()
