"""Runs in the child: confine this process with the features of the kernel, then become the command.

`python -I -S sandbox_launcher.py DESCRIPTOR` reads a JSON plan from the open file of that number. Only the standard
library is used, and as little of it as possible: this starts before every command on a machine without bubblewrap.
`sandbox.py` imports the module too, for the filter and to test the kernel.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import struct
import sys
from contextlib import suppress
from typing import Any

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""The same numbers on every architecture."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 1, 4, 38, 22, 36
PR_CAPBSET_DROP = 24
KEPT_CAPABILITIES = (0, 1, 3)
"""To change the owner of files, to bypass their permissions, to change those."""
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
READS = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""The rights that apply to a file: the kernel refuses the others there."""
LIST_FOLDER = 1 << 3
NET_RIGHTS, SCOPES = 0b11, 0b11
AF_UNIX, AF_NETLINK = 1, 16

# System calls that bypass a sandbox: other processes, mounts and namespaces, the kernel itself, io_uring (which opens
# sockets without the call that is filtered).
_DENIED = {
    "x86_64": (
        *(101, 310, 311, 165, 166, 155, 308, 272, 321, 246, 320, 175, 313, 176, 298, 323, 250, 248, 249, 304, 425, 426),
        *(427, 428, 429, 430, 431, 432, 433, 442, 312, 438),
    ),
    "aarch64": (
        *(
            117,
            270,
            271,
            40,
            39,
            41,
            268,
            97,
            280,
            104,
            294,
            105,
            273,
            106,
            241,
            282,
            219,
            217,
            218,
            265,
            425,
            426,
            427,
        ),
        *(428, 429, 430, 431, 432, 433, 442, 272, 438),
    ),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The number of the architecture in a filter, and of the system call `socket`."""


def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return the version of Landlock's interface, or 0 if the kernel has none."""
    return max(libc().syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1), 0)


def filter_program(*, network: bool) -> bytes:
    """Return a seccomp filter (an array of struct sock_filter); empty on an unknown architecture."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    number, socket_call = _ARCHITECTURES[machine]
    load, equal, at_least, give, refused, allowed = 0x20, 0x15, 0x35, 0x06, 0x00050000 | 1, 0x7FFF0000
    steps: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, number),
        (give, 0, 0, 0x80000000),  # another one: end the process
        (load, 0, 0, 0),  # the system call
    ]
    if machine == "x86_64":
        steps += [(at_least, 0, 1, 0x40000000), (give, 0, 0, refused)]  # x32 has numbers of its own
    for call in _DENIED[machine]:
        steps += [(equal, 0, 1, call), (give, 0, 0, refused)]
    if not network:
        steps += [
            (equal, 0, 4, socket_call),
            (load, 0, 0, 16),  # the first argument: the family
            (equal, 2, 0, AF_UNIX),
            (equal, 1, 0, AF_NETLINK),
            (give, 0, 0, 0x00050000 | 13),
        ]
    steps.append((give, 0, 0, allowed))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def restrict_files(readable: list[str], listable: list[str], writable: list[str], *, network: bool) -> None:
    """Restrict this process and its children to these paths (Landlock)."""
    call = libc().syscall
    version = landlock_version()
    every = ALL_RIGHTS[min(version, 5)]
    attributes = [every]
    if version >= 4:
        attributes.append(0 if network else NET_RIGHTS)
    if version >= 6:
        attributes.append(SCOPES)
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = call(LANDLOCK_CREATE, packed, ctypes.c_size_t(len(packed)), 0)
    _check(ruleset, "landlock")
    for paths, rights in ((readable, READS), (listable, LIST_FOLDER), (writable, every)):
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # it does not exist: nothing to allow
            given = rights if os.path.isdir(path) else rights & FILE_RIGHTS  # noqa: PTH112  pathlib takes 10 ms to import
            rule = struct.pack("=Qi", given & every, descriptor)
            _check(call(LANDLOCK_ADD, ruleset, 1, rule, 0), f"landlock rule for {path}")
            os.close(descriptor)
    _check(libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(call(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def restrict_calls(*, network: bool) -> None:
    """Refuse system calls that bypass the sandbox (seccomp)."""
    program = filter_program(network=network)
    if not program:
        return
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _check(libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(libc().prctl(PR_SET_SECCOMP, 2, header, 0, 0), "seccomp")


def drop_capabilities() -> None:
    """Keep the capabilities that root needs to write files of others; the rest would give access to other processes."""
    for capability in range(64):
        if capability not in KEPT_CAPABILITIES:
            libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # an error means that there is none of this number


def enter_namespaces(*, network: bool) -> bool:
    """Create namespaces for processes (and for no network). Return False if the kernel does not permit it."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWPID | CLONE_NEWIPC | (0 if network else CLONE_NEWNET)
    if libc().unshare(flags | (CLONE_NEWUSER if user else 0)) != 0:
        return False
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  pathlib takes 10 ms to import
                file.write(text)
    return True


def main() -> None:
    """Stay as the guardian of the command, so that all its processes end when this process or its parent does."""
    with open(int(sys.argv[1]), "rb") as file:  # noqa: PTH123  pathlib takes 10 ms to import
        plan = json.loads(file.read())
    parent = os.getppid()
    libc().prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    is_apart = enter_namespaces(network=plan["network"])
    child = os.fork()
    if child == 0:
        _become(plan, is_first=is_apart)

    def on_end(_number: int, _frame: object) -> None:
        _end_all(child, 143, is_apart=is_apart)

    signal.signal(signal.SIGTERM, on_end)
    _end_all(child, _wait_for(child), is_apart=is_apart)


def _become(plan: dict[str, Any], *, is_first: bool) -> None:
    """Run the command. The first process of a namespace cannot be killed from inside it and must wait for orphans, so
    this process stays the first."""
    try:
        libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if is_first and (inner := os.fork()) != 0:
            os._exit(_wait_for(inner))
        if os.geteuid() == 0:
            drop_capabilities()
        restrict_files(plan["readable"], plan["listable"], plan["writable"], network=plan["network"])
        restrict_calls(network=plan["network"])
        os.execvp(plan["command"][0], plan["command"])  # noqa: S606  a list of words, no shell
    except OSError as error:
        sys.stderr.write(f"{plan['command'][0]} cannot be started: {error.strerror}\n")
    os._exit(127)


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_all(child: int, code: int, *, is_apart: bool) -> None:
    """Kill the remaining processes of the command. In a process namespace one kill is enough; otherwise orphans become
    children of this process, which kills until there are none."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    while not is_apart:
        try:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            os.wait()
        except ProcessLookupError:
            continue
        except ChildProcessError:
            break
    os._exit(code)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123  pathlib takes 10 ms to import
        return [int(pid) for pid in file.read().split()]


if __name__ == "__main__":
    main()
