"""Programs under strace: whom they call, by the kernel's own account, and what they do when a disk fails."""

from __future__ import annotations

import re
from pathlib import Path

_CALL = re.compile(r"(?:connect|sendto|sendmsg|sendmmsg)\(.*?sa_family=AF_INET6?,.*")
_HERE = re.compile(r'inet_addr\("(?:127\.|0\.0\.0\.0")|inet_pton\(AF_INET6, "::1"')


def watching(trace: Path) -> list[str]:
    """Put it before a command: every connection of the process and its children is written down."""
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-e", calls, "-o", str(trace)]


def failing(calls: str, error: str, when: str, trace: Path) -> list[str]:
    """Put it before a command: calls fail by their number (`9..20`, `9+`), which each thread counts for itself."""
    inject = f"inject={calls}:error={error}:when={when}"
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={calls}", "-e", inject, "-o", str(trace)]


def calls_out(trace: Path) -> list[str]:
    """What was connected to, or sent, beyond this machine."""
    lines = trace.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if _CALL.search(line) and not _HERE.search(line)]
