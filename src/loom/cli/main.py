"""The `loom` command's front door. It answers `--version` by itself and imports the rest only when it is needed."""

from __future__ import annotations

import io
import os
import sys

COMPLETING = "_LOOM_COMPLETE"
"""Set by the shell when it asks for completions; then the command line is in other variables."""


def main(arguments: list[str] | None = None) -> None:
    """One clear sentence for every error; a traceback only with --debug."""
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"loom {version()}")
        return
    debug, arguments = _without_debug(arguments)
    from loom.cli.root import run_command_line

    sys.exit(run_command_line(arguments or _when_bare(), debug=debug))


def _open_streams() -> None:
    """A stream that was closed before we began leads nowhere; else the first file that we open would take its place.
    Where the locale is not UTF-8, what it cannot write becomes a question mark instead of ending the answer."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  open as long as we run
        elif mode == "w" and isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")


def version() -> str:
    """As the installed package says. The name of its folder tells it far sooner than importlib.metadata would."""
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
    """`--debug` may stand anywhere before `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest = [word for word in arguments[:end] if word != "--debug"]
    return len(rest) < end, rest + arguments[end:]


def _when_bare() -> list[str]:
    """`loom` alone: a conversation on a terminal, a question from a pipe."""
    if COMPLETING in os.environ:
        return []
    return ["chat"] if sys.stdin is not None and sys.stdin.isatty() else ["ask"]


if __name__ == "__main__":
    main()
