"""Threads for functions of users: plain `def` tools, and `approve`."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_own_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that may block for as long as it wants, for example until a user answers.

    The threads of the event loop are few: if such functions held all of them and waited for work that needs another
    one, such as reading a medium, nothing would ever continue.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="loom-function")
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown(wait=False)
