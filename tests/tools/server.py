"""A web server on this machine that answers as a test tells it, and remembers who asked. A canary stays silent."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

Answer = Callable[[socket.socket], None]


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    address_family = socket.AF_INET

    def __init__(self, answers: dict[str, bytes | Answer], tls: ssl.SSLContext | None, at: tuple[str, int]) -> None:
        super().__init__(at, Handler)
        self.answers = answers
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.connections = 0
        self.tls = tls

    @property
    def port(self) -> int:
        return self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is not an error of the test."""


class Handler(socketserver.BaseRequestHandler):
    server: Server
    request: socket.socket

    def handle(self) -> None:
        self.server.connections += 1
        link = self.server.tls.wrap_socket(self.request, server_side=True) if self.server.tls else self.request
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = link.recv(65536)
            if not chunk:
                return
            head += chunk
        path = head.split(b" ")[1].decode()
        self.server.heads.append(head.decode("latin-1"))
        self.server.asked.append(path)
        answer = self.server.answers.get(path, self.server.answers.get("*", not_found()))
        if callable(answer):
            answer(link)
        else:
            link.sendall(answer)
        if link is not self.request:
            link.close()


def page(body: bytes | str, kind: str = "text/html; charset=utf-8", *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


def redirect(location: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def not_found() -> bytes:
    return b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngone"


@contextmanager
def serving(
    answers: dict[str, bytes | Answer], tls: ssl.SSLContext | None = None, at: tuple[str, int] = ("127.0.0.1", 0)
) -> Generator[Server]:
    with Server(answers, tls, at) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
