"""Yes-or-no questions in the terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

import click


def confirm(question: str) -> bool:
    """Ask on stderr; an empty answer means no. Raises `click.Abort` at Ctrl+C and at the end of the input."""
    if not sys.stdin.isatty():
        return click.confirm(question, err=True)
    while True:
        try:
            answer = _read_answer(f"{question} [y/N]: ").strip().lower()
        except (KeyboardInterrupt, EOFError):
            raise click.Abort from None
        if answer in ("", "n", "no"):
            return False
        if answer in ("y", "yes"):
            return True
        click.echo("Type y or n.", err=True)


def _read_answer(prompt: str) -> str:
    """Read a line from the terminal. Raises `EOFError` at its end, `KeyboardInterrupt` at Ctrl+C.

    `input()` loses a signal that arrives after it has written the prompt and before it reads: Python only notes the
    signal, and the read blocks until a key is pressed. The C handler writes to the wakeup descriptor at any time.
    """
    descriptor = sys.stdin.fileno()
    with _signal_pipe() as signalled:
        click.echo(prompt, nl=False, err=True)
        while descriptor not in select.select([descriptor, signalled], [], [])[0]:
            os.read(signalled, 1)  # another signal; its own handler has seen it
        line = os.read(descriptor, 4096)  # a whole line is there: the terminal gives no less
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace")


@contextmanager
def _signal_pipe() -> Generator[int]:
    """Give a descriptor that becomes readable at a signal. Ctrl+C raises `KeyboardInterrupt` meanwhile, even where an
    event loop would only cancel its task."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(readable)
        os.close(writable)
