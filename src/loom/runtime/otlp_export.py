"""The exporters: spans in batches, metrics at intervals, both in threads of the SDK.

What the SDK logs about failed exports is dropped, and one warning takes its place until the collector is back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from loom.runtime.turn_spans import SpanObservers, TurnIds

_SCOPE: Final = "loom"
_log = logging.getLogger(__name__)


class OtlpExport:
    """Exports to the collector at `endpoint`, or to those that `environ` names."""

    def __init__(self, endpoint: str, *, service_name: str, records_content: bool, environ: Mapping[str, str]) -> None:
        base = endpoint.rstrip("/")
        is_named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        given = service_name or ("" if is_named else "loom")
        resource = Resource.create({SERVICE_NAME: given} if given else None)
        ids = TurnIds()
        self._collector = _Collector(base)
        self._tracers = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        if environ.get("OTEL_TRACES_EXPORTER", "").strip() != "none":
            spans = _SpanExporter(self._collector, f"{base}/v1/traces" if base else None)
            self._tracers.add_span_processor(BatchSpanProcessor(spans))
        readers: list[PeriodicExportingMetricReader] = []
        if environ.get("OTEL_METRICS_EXPORTER", "").strip() != "none":
            metrics = _MetricExporter(self._collector, f"{base}/v1/metrics" if base else None)
            readers.append(PeriodicExportingMetricReader(metrics))
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        made_by = version("loom-runtime")
        self.observers: Final = SpanObservers(
            self._tracers.get_tracer(_SCOPE, made_by),
            self._meters.get_meter(_SCOPE, made_by),
            ids,
            records_content=records_content,
        )

    def close(self, seconds: float) -> None:
        """Send what is left, and return after `seconds` at most; the threads end with the process."""
        self._collector.close()
        closing = threading.Thread(target=self._shut_down, daemon=True)
        closing.start()
        closing.join(seconds)
        if closing.is_alive():
            self._collector.note_failure("the rest", lambda: None)

    def _shut_down(self) -> None:
        with _mute_logs():
            self._tracers.shutdown()
            self._meters.shutdown()


class _Collector:
    """Whether the collector accepts spans and metrics. The first failure is logged, until both arrive again."""

    def __init__(self, address: str) -> None:
        self._place = urlsplit(address).netloc.rpartition("@")[2] or "the collector"
        self._failing: dict[str, Callable[[], None]] = {}
        """The kinds of data that it does not accept now, and how to end the retries of each."""
        self._is_closing = False

    def note_success(self, kind: str) -> None:
        self._failing.pop(kind, None)

    def note_failure(self, kind: str, end_retries: Callable[[], None]) -> None:
        if not self._failing:
            _log.warning("Telemetry (%s) cannot be sent to %s; turns continue without it.", kind, self._place)
        self._failing[kind] = end_retries
        if self._is_closing:
            end_retries()

    def close(self) -> None:
        """Do not retry any more, neither now nor later."""
        self._is_closing = True
        for end_retries in list(self._failing.values()):
            end_retries()


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, collector: _Collector, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._collector = collector

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with _mute_logs(self._note_failure):
            result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self._collector.note_success("spans")
        return result

    def _note_failure(self) -> None:
        self._collector.note_failure("spans", self.shutdown)


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, collector: _Collector, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._collector = collector

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        with _mute_logs(self._note_failure):
            result = super().export(metrics_data, timeout_millis)  # pyright: ignore[reportUnknownMemberType]  # untyped there
        if result is MetricExportResult.SUCCESS:
            self._collector.note_success("metrics")
        return result

    def _note_failure(self) -> None:
        self._collector.note_failure("metrics", partial(OTLPMetricExporter.shutdown, self))  # pyright: ignore[reportUnknownMemberType]  # untyped there


# What the exporters log ----------------------------------------------------------------------------------------------


class _ThreadState(threading.local):
    is_quiet = False
    on_failure: Callable[[], None] | None = None


_thread = _ThreadState()


@contextmanager
def _mute_logs(on_failure: Callable[[], None] | None = None) -> Generator[None]:
    """Drop what exporters log in this thread. `on_failure` is called at the first warning, before any retry."""
    _thread.is_quiet, _thread.on_failure = True, on_failure
    try:
        yield
    finally:
        _thread.is_quiet, _thread.on_failure = False, None


def _keep_record(record: logging.LogRecord) -> bool:
    if not _thread.is_quiet:
        return True  # an exporter of the program that Loom is part of
    on_failure = _thread.on_failure
    if on_failure is not None and record.levelno >= logging.WARNING:
        _thread.on_failure = None
        on_failure()
    return False


for _module in (trace_exporter, metric_exporter):
    logging.getLogger(_module.__name__).addFilter(_keep_record)
