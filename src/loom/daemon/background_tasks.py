"""Tasks that run beside the requests of clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

_log = logging.getLogger(__name__)


def start_task(work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
    """Start a task that nothing awaits. Log the error if a bug ends it; `what` names the work."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_log_failure, what))
    return task


def _log_failure(what: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s failed", what, exc_info=error)
