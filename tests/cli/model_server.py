"""A model server of the OpenAI-compatible kind, on a real socket, that answers from a script and keeps each request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = str | tuple[str] | dict[str, Any] | int
"""Words, words that stop in the middle until the test is over, a tool call, or a status to refuse with."""


class ModelServer(ThreadingHTTPServer):
    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()

    @property
    def config(self) -> str:
        """For loom.toml: the server's model is called `local`."""
        url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        return f'[models.local]\nprovider = "compatible"\nmodel = "scripted"\nbase_url = "{url}"\n'


@contextmanager
def model_server(*answers: Answer, delay_seconds: float = 0.0) -> Generator[ModelServer]:
    """Gives its answers in turn; the last one for ever. A slow one thinks first."""
    left = list(answers)

    def answer(_: dict[str, Any]) -> Answer:
        server.over.wait(delay_seconds)
        return left.pop(0) if len(left) > 1 else left[0]

    server = ModelServer(answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.server.answer(body)
        if isinstance(answer, int):
            self._json(answer, {"error": {"message": "not today", "type": "invalid_request_error"}})
            return
        delta: dict[str, Any] = {"role": "assistant", "content": answer[0] if isinstance(answer, tuple) else answer}
        reason = "stop"
        if isinstance(answer, dict):
            call = {"name": answer["name"], "arguments": json.dumps(answer["arguments"])}
            number = len(self.server.requests)
            delta = {"tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": call}]}
            reason = "tool_calls"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._events({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if isinstance(answer, tuple):
            self.server.over.wait()
            return
        self._events(
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}},
        )

        self.wfile.write(b"data: [DONE]\n\n")

    def _events(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.wfile.write(
                f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', **event})}\n\n".encode()
            )

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """A test's output is not the place."""
