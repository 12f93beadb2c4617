"""A collector: an HTTP server on loopback that decodes what OTLP exporters send."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class ReceivedSpan:
    def __init__(self, span: Span, resource: dict[str, Any]) -> None:
        self.id: Final = span.span_id.hex()
        self.trace: Final = span.trace_id.hex()
        self.parent: Final = span.parent_span_id.hex()
        self.name: Final = span.name
        self.attributes: Final = _attributes(span.attributes)
        self.events: Final = [(event.name, _attributes(event.attributes)) for event in span.events]
        self.is_error: Final = span.status.code == Status.STATUS_CODE_ERROR
        self.seconds: Final = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.resource: Final = resource


class Receiver(ThreadingHTTPServer):
    """`answers` is set while requests are answered; without it they wait. `status` is what they are answered with."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = Event()
        self.answers.set()
        self.asked = Event()
        self.status = 200
        self.bodies: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def disconnect(self) -> None:
        """End all connections, as a process that is killed does."""
        for connection in self._connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[ReceivedSpan]:
        found: list[ReceivedSpan] = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    resource = _attributes(each.resource.attributes)
                    found += [ReceivedSpan(span, resource) for scope in each.scope_spans for span in scope.spans]
        return found

    def named(self, start: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def below(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        return [span for span in self.spans if (span.trace, span.parent) == (parent.trace, parent.id)]

    def points(self, metric: str) -> list[tuple[dict[str, Any], float]]:
        """The attributes and the sum (of a histogram) or value (of a counter) of each series."""
        return list(self._points(metric))

    def _points(self, name: str) -> Iterator[tuple[dict[str, Any], float]]:
        for path, body in self.bodies:
            if path != "/v1/metrics":
                continue
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in each.scope_metrics for metric in scope.metrics):
                    if metric.name == name:
                        for point in metric.histogram.data_points:
                            yield _attributes(point.attributes), point.sum
                        for number in metric.sum.data_points:
                            yield _attributes(number.attributes), number.as_int or number.as_double


class _Handler(BaseHTTPRequestHandler):
    server: Receiver  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append((self.path, body))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.asked.set()
        self.server.answers.wait()
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  the name of the base class


@contextmanager
def receiving() -> Generator[Receiver]:
    with Receiver() as found:
        thread = Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.answers.set()
            found.shutdown()
            found.server_close()
            found.disconnect()
            thread.join()


def _attributes(found: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in found}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
