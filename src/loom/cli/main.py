"""The entry point of `loom`. It handles `--version` itself and imports everything else only when needed."""

from __future__ import annotations

import io
import os
import sys

COMPLETING = "_LOOM_COMPLETE"
"""Set by the shell when it requests completions; the command line is then in other variables."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit. Errors are printed as one sentence, with a traceback only with --debug."""
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"loom {version()}")
        return
    debug, arguments = _without_debug(arguments)
    from loom.cli.root import run_command_line

    sys.exit(run_command_line(arguments or _when_bare(), debug=debug))


def _open_streams() -> None:
    """Replace closed standard streams by /dev/null: otherwise the first opened file would take their descriptor. If the
    locale is not UTF-8, write unsupported characters as question marks instead of failing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  open until the process ends
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")


def version() -> str:
    """Return the version of the installed package, from the name of its folder, which is much faster than
    importlib.metadata."""
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.name for entry in entries]
        except OSError:
            continue
        for name in names:
            if name.startswith("loom_runtime-") and name.endswith(".dist-info"):
                return name.removeprefix("loom_runtime-").removesuffix(".dist-info")
    from importlib import metadata

    return metadata.version("loom-runtime")


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Return whether `--debug` is among the arguments before `--`, and the arguments without it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest = [word for word in arguments[:end] if word != "--debug"]
    return len(rest) < end, rest + arguments[end:]


def _when_bare() -> list[str]:
    """Return the arguments for `loom` alone: a chat on a terminal, a question from a pipe."""
    if COMPLETING in os.environ:
        return []
    return ["chat"] if sys.stdin is not None and sys.stdin.isatty() else ["ask"]


if __name__ == "__main__":
    main()
