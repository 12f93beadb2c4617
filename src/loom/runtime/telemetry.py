"""Telemetry: OpenTelemetry spans and metrics, sent by OTLP over HTTP if a collector is configured.

The SDK exports in threads of its own. A collector that is unavailable is reported once, and never delays a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from loom.agent.observer import NullObserver, Observers
from loom.config import Config
from loom.errors import ExtraMissing

if TYPE_CHECKING:
    from loom.runtime.otlp_export import OtlpExport

_ENDPOINTS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_FLUSH_SECONDS: Final = 2.0
"""How long a runtime that closes waits for the collector."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_telemetry(config: Config) -> AsyncGenerator[Observers]:
    """Yield the observers of turns; they observe nothing unless `telemetry.endpoint` or a variable of OpenTelemetry
    names a collector. Raise `ExtraMissing` if the setting does and the packages are not installed; for the variables,
    which other programs use too, only log it."""
    environ = config.provenance.environ
    if not _is_on(config, environ):
        yield NullObserver()
        return
    try:
        export = await asyncio.to_thread(_open_export, config, environ)
    except ExtraMissing as error:
        if config.telemetry.endpoint:
            raise
        _log.warning("%s", error)
        yield NullObserver()
        return
    try:
        yield export.observers
    finally:
        await asyncio.to_thread(export.close, _FLUSH_SECONDS)


def _is_on(config: Config, environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(config.telemetry.endpoint) or any(environ.get(name, "").strip() for name in _ENDPOINTS)


def _open_export(config: Config, environ: Mapping[str, str]) -> OtlpExport:
    try:
        from loom.runtime.otlp_export import OtlpExport
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ExtraMissing(
            "Telemetry is configured, but OpenTelemetry is not installed.",
            hint="Run: pip install 'loom-runtime[otel]'",
        ) from None
    return OtlpExport(
        config.secret("telemetry", "endpoint"),
        service_name=config.telemetry.service_name,
        records_content=config.telemetry.content,
        environ=environ,
    )
