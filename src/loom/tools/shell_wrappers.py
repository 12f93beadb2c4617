"""Programs that run other programs (`env`, `sudo`, `xargs`, `sh -c`, `find -exec`, `git -c` …), and the commands that
they run.

`inner_commands` returns the command lines inside one command, as far as its words contain them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from loom.tools.shell_syntax import UNKNOWN

Words: TypeAlias = Sequence[str]


class InnerCommands(msgspec.Struct, frozen=True):
    """The commands that a command runs: `words` of other commands, `scripts` for a shell."""

    words: tuple[tuple[str, ...], ...] = ()
    scripts: tuple[str, ...] = ()
    is_unknown: bool = False
    """Whether it may run something that its words do not contain."""
    is_opaque: bool = False
    """Whether it runs code in another language, or a script from elsewhere."""


NOTHING: Final = InnerCommands()
ANYTHING: Final = InnerCommands(is_unknown=True)
CODE: Final = InnerCommands(is_opaque=True)


class _Prefix(msgspec.Struct, frozen=True):
    """A program that is followed by a command: options that take a value, and arguments before the command."""

    valued: str = ""
    valued_long: tuple[str, ...] = ()
    skipped: int = 0
    takes_assignments: bool = False
    shell_options: tuple[str, ...] = ()
    """Options whose value is a script."""
    appends: bool = False
    """Whether it adds arguments that are known only later."""


_PREFIXES: Final[Mapping[str, _Prefix]] = {
    "env": _Prefix("uC", ("unset", "chdir", "block-signal", "default-signal"), takes_assignments=True),
    "command": _Prefix(),
    "builtin": _Prefix(),
    "exec": _Prefix("a"),
    "sudo": _Prefix(
        "ughpCDRTUrtac", ("user", "group", "host", "prompt", "chdir", "chroot", "role", "type"), takes_assignments=True
    ),
    "doas": _Prefix("uC", takes_assignments=True),
    "nohup": _Prefix(),
    "setsid": _Prefix(),
    "stdbuf": _Prefix("ioe", ("input", "output", "error")),
    "nice": _Prefix("n", ("adjustment",)),
    "ionice": _Prefix("cnpPu", ("class", "classdata")),
    "chrt": _Prefix("TPD", skipped=1),
    "taskset": _Prefix("p", skipped=1),
    "timeout": _Prefix("ks", ("kill-after", "signal"), skipped=1),
    "time": _Prefix("fo", ("format", "output")),
    "coproc": _Prefix(),
    "xargs": _Prefix(
        "IiEeLlnPsda",
        ("replace", "max-args", "max-procs", "max-lines", "delimiter", "arg-file", "max-chars", "eof"),
        appends=True,
    ),
    "parallel": _Prefix("jIan", ("jobs", "max-args", "colsep", "arg-file", "joblog", "results"), appends=True),
    "watch": _Prefix("nq", ("interval", "equexit")),
    "chroot": _Prefix("", ("userspec", "groups"), skipped=1),
    "unshare": _Prefix("SGRw", ("setuid", "setgid", "root", "wd")),
    "nsenter": _Prefix("tSGrw", ("target", "setuid", "setgid")),
    "strace": _Prefix("abeEIoOpPsSuX"),
    "ltrace": _Prefix("aAeFlnopsuwx"),
    "flock": _Prefix("wE", ("timeout", "wait", "conflict-exit-code"), skipped=1, shell_options=("-c", "--command")),
    "busybox": _Prefix(),
    "toybox": _Prefix(),
    "fakeroot": _Prefix("lfis"),
    "systemd-run": _Prefix("pEHMut", ("unit", "property", "uid", "gid", "setenv", "slice", "working-directory")),
    "script": _Prefix("EIOBTmot", shell_options=("-c", "--command")),
    "su": _Prefix("gGsw", ("group", "shell"), skipped=1, shell_options=("-c", "--command")),
    "runuser": _Prefix("ugGsw", ("user", "group", "shell"), shell_options=("-c", "--command")),
    "entr": _Prefix(appends=True),
    "dbus-run-session": _Prefix(),
    "rlwrap": _Prefix("bcCfHlOpPqSstwD"),
    "catchsegv": _Prefix(),
    "unbuffer": _Prefix(),
    "proot": _Prefix("rbqkiw"),
    "eatmydata": _Prefix(),
    "valgrind": _Prefix(),
    "prlimit": _Prefix("po"),
    "setarch": _Prefix(skipped=1),
    "linux64": _Prefix(),
    "choom": _Prefix("np"),
    "pipx": _Prefix(skipped=1),
    "uvx": _Prefix(),
    "npx": _Prefix("pc", ("package",), shell_options=("-c", "--call")),
}
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "busybox-sh"})
_CODE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("python", "python2", "python3", "pypy3"), "cm"),
    **dict.fromkeys(("perl", "ruby"), "eE"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), "ep"),
    **dict.fromkeys(("php",), "rBRE"),
    **dict.fromkeys(("lua", "luajit", "osascript", "julia", "Rscript", "guile", "scala", "groovy", "elixir"), "eE"),
    **dict.fromkeys(("tclsh", "expect", "gdb", "vim", "vi", "nvim", "ex", "ed", "emacs", "nano"), "cxesf"),
}
"""Interpreters, and the options that are followed by code."""
_AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_VERSIONED: Final = re.compile(r"(python|pypy|perl|ruby|lua|php|node)[\d.]+")


def inner_commands(name: str, words: Words) -> InnerCommands:
    """Return the commands that the command `words` runs besides itself; `name` is its program without a folder."""
    found = _VERSIONED.fullmatch(name)
    name = found[1] if found else name
    if name in _SHELLS:
        return _shell(words)
    if special := _SPECIAL.get(name):
        return special(words)
    if prefix := _PREFIXES.get(name):
        return _command_after(prefix, words)
    if name in _AWKS:
        return CODE if any("system" in word or "|" in word or UNKNOWN in word for word in words[1:]) else NOTHING
    if letters := _CODE.get(name):
        # Code in an option, from standard input or in a file is in another language: opaque, except for `--version`.
        if len(words) == 1 or any(_has_letter(word, letters) or UNKNOWN in word for word in words[1:]):
            return CODE
        return InnerCommands(is_opaque=not any(word in ("--version", "-V", "--help") for word in words[1:]))
    return NOTHING


def _has_letter(word: str, letters: str) -> bool:
    return word == "-" or (word.startswith("-") and not word.startswith("--") and any(x in word[1:] for x in letters))


def _command_after(prefix: _Prefix, words: Words) -> InnerCommands:
    """Return the command after a wrapper's own options and arguments."""
    rest = list(words[1:])
    scripts: list[str] = []
    skipped = prefix.skipped
    while rest:
        word = rest[0]
        if UNKNOWN in word and not (prefix.takes_assignments and _ASSIGNMENT.match(word)):
            return ANYTHING
        if word == "--":
            del rest[0]
            break
        if word in prefix.shell_options:
            scripts += rest[1:2]
            del rest[:2]
        elif word.startswith("--") and len(word) > 2:
            del rest[: 2 if "=" not in word and word[2:] in prefix.valued_long else 1]
        elif word.startswith("-") and len(word) > 1:
            del rest[: 2 if _takes_next(word, prefix.valued) else 1]
        elif prefix.takes_assignments and _ASSIGNMENT.match(word):
            del rest[0]
        elif skipped:
            skipped -= 1
            del rest[0]
        else:
            break
    rest = rest[skipped:] if skipped and rest else rest
    if not rest:
        return InnerCommands(scripts=tuple(scripts))
    return InnerCommands(((*rest, *([UNKNOWN] if prefix.appends else [])),), tuple(scripts))


def _takes_next(word: str, valued: str) -> bool:
    """Return whether the next word is the value of the last letter: `-u root`, not `-uroot`."""
    for at, letter in enumerate(word[1:], start=1):
        if letter in valued:
            return at == len(word) - 1
    return False


def _shell(words: Words) -> InnerCommands:
    rest = list(words[1:])
    while rest:
        word = rest[0]
        if UNKNOWN in word:
            return ANYTHING
        if word == "--":
            del rest[0]
            break
        if word.startswith(("--", "+")):
            del rest[: 2 if word in ("--rcfile", "--init-file") or word in ("+o", "+O") else 1]
        elif word.startswith("-") and len(word) > 1:
            if "c" in word[1:]:
                return _script_after(rest[1:])
            del rest[: 2 if word[-1] in "oO" else 1]
        else:
            break
    return CODE if rest else ANYTHING  # a script from a file or from standard input


def _script_after(words: Words) -> InnerCommands:
    """Read `sh -c -- SCRIPT NAME ARGUMENTS`, with further options before the script."""
    rest = list(words)
    while rest and rest[0].startswith(("-", "+")) and len(rest[0]) > 1:
        del rest[: 2 if rest[0] in ("-o", "+o", "-O", "+O") else 1]
    if not rest or UNKNOWN in rest[0]:
        return ANYTHING
    return InnerCommands(scripts=(rest[0],))


def _eval(words: Words) -> InnerCommands:
    text = " ".join(words[1:])
    return ANYTHING if UNKNOWN in text else InnerCommands(scripts=(text,))


def _trap(words: Words) -> InnerCommands:
    rest = [word for word in words[1:] if word != "--"]
    if not rest or rest[0].startswith("-"):
        return NOTHING
    return ANYTHING if UNKNOWN in rest[0] else InnerCommands(scripts=(rest[0],))


def _find(words: Words) -> InnerCommands:
    """Return the commands of `-exec`; the files that are found are unknown arguments in place of `{}`."""
    found: list[tuple[str, ...]] = []
    at = 1
    while at < len(words):
        if words[at] in _FIND_RUNS:
            end = next((i for i in range(at + 1, len(words)) if words[i] in (";", "+")), len(words))
            found.append(tuple(word.replace("{}", UNKNOWN) for word in words[at + 1 : end]))
            at = end
        elif UNKNOWN in words[at]:
            return InnerCommands(tuple(found), is_unknown=True)
        at += 1
    return InnerCommands(tuple(found))


def _env(words: Words) -> InnerCommands:
    """Read `env`, including `-S`, which splits a string into a command."""
    for at, word in enumerate(words[1:], start=1):
        split = re.match(r"-[a-zA-Z0]*S(.*)|--split-string(?:=(.*))?", word, re.DOTALL)
        if split:
            text = split[1] or split[2] or (words[at + 1] if at + 1 < len(words) else "")
            rest = " ".join(words[at + (1 if split[1] or split[2] else 2) :])
            return _eval(("eval", "env", text, rest))
        if not word.startswith("-") and not _ASSIGNMENT.match(word):
            break
    return _command_after(_PREFIXES["env"], words)


def _watch(words: Words) -> InnerCommands:
    """Read `watch`, which passes its words to a shell."""
    found = _command_after(_PREFIXES["watch"], words)
    return InnerCommands(found.words, tuple(" ".join(inner) for inner in found.words if UNKNOWN not in " ".join(inner)))


def _ssh(words: Words) -> InnerCommands:
    """Return the remote command, which counts like a local one; options may contain programs to run on this machine."""
    if any("proxycommand" in word.lower() or "localcommand" in word.lower() or UNKNOWN in word for word in words):
        return ANYTHING
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0][-1] in "BbcDEeFIiJLlmOoPpQRSWw" and len(rest[0]) == 2 else 1]
    return _eval(("eval", *rest[1:])) if len(rest) > 1 else NOTHING


def _any_command(_words: Words) -> InnerCommands:
    return ANYTHING


def _source(_words: Words) -> InnerCommands:
    return CODE


# git -----------------------------------------------------------------------------------------------------------------

_GIT_VALUED: Final = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"}
)
_GIT_HARMLESS: Final = re.compile(
    r"(user\.(name|email)|color\..*|advice\..*|core\.(quotepath|autocrlf|eol|abbrev|ignorecase|filemode)"
    r"|commit\.gpgsign|tag\.gpgsign|init\.defaultbranch|log\..*|diff\.(renames|algorithm|context|mnemonicprefix|noprefix)"
    r"|pull\.(rebase|ff)|merge\.(ff|conflictstyle)|fetch\.prune|push\.default|safe\.directory|http\.postbuffer"
    r"|protocol\.version|gc\.auto|status\..*|column\..*|rebase\.autostash|core\.pager|pager\..*)",
    re.IGNORECASE,
)
_GIT_RUNNING_KEY: Final = re.compile(r"alias\.|core\.|.*\.(helper|command|cmd|tool|textconv|external)")
_GIT_RUNNING_OPTIONS: Final = (
    *("--upload-pack", "--receive-pack", "--exec", "-u", "--open-files-in-pager", "-O", "--ext-diff", "--textconv"),
)
_GIT_COMMANDS: Final = frozenset(
    [
        "add",
        "am",
        "annotate",
        "apply",
        "archive",
        "bisect",
        "blame",
        "branch",
        "bundle",
        "cat-file",
        "check-attr",
        "check-ignore",
        "checkout",
        "cherry",
        "cherry-pick",
        "clean",
        "clone",
        "commit",
        "commit-tree",
        "config",
        "count-objects",
        "describe",
        "diff",
        "diff-files",
        "diff-index",
        "diff-tree",
        "difftool",
        "fast-export",
        "fetch",
        "filter-branch",
        "for-each-ref",
        "for-each-repo",
        "format-",
        "patch",
        "fsck",
        "gc",
        "grep",
        "hash-object",
        "help",
        "init",
        "log",
        "ls-files",
        "ls-remote",
        "ls-tree",
        "maintenance",
        "merge",
        "merge-base",
        "merge-file",
        "merge-tree",
        "mergetool",
        "mktag",
        "mktree",
        "mv",
        "name-rev",
        "notes",
        "pack-refs",
        "prune",
        "pull",
        "push",
        "range-diff",
        "read-tree",
        "rebase",
        "reflog",
        "remote",
        "repack",
        "replace",
        "request-pull",
        "rerere",
        "reset",
        "restore",
        "rev-list",
        "rev-parse",
        "revert",
        "rm",
        "shortlog",
        "show",
        "show-branch",
        "show-index",
        "show-ref",
        "sparse-checkout",
        "stage",
        "stash",
        "status",
        "stripspace",
        "submodule",
        "switch",
        "symbolic-ref",
        "tag",
        "unpack-objects",
        "update-index",
        "update-ref",
        "var",
        "verify-",
        "commit",
        "verify-pack",
        "verify-tag",
        "version",
        "whatchanged",
        "worktree",
        "write-tree",
    ]
)


def git_command(words: Words) -> tuple[str, ...]:
    """Return a git command without the options before its subcommand: `git -C x push` → `git push`."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in _GIT_VALUED else 1]
    return ("git", *rest)


def _git_options(words: Words) -> Iterator[tuple[str, str]]:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if words[at] in _GIT_VALUED:
            value = words[at + 1] if at + 1 < len(words) else ""
            at += 1
        elif not equals:
            value = ""
        yield name, value
        at += 1


def _git(words: Words) -> InnerCommands:
    """Return aliases, and every other command that git runs."""
    plain = git_command(words)
    options = list(_git_options(words))
    aliases: dict[str, str] = {}
    is_unknown = any(UNKNOWN in word for word in words[: len(words) - len(plain) + 2])
    for name, value in options:
        key, _, text = value.partition("=")
        if name in ("--exec-path", "--config-env") and value:
            is_unknown = True
        elif name == "-c" and key.lower().startswith("alias."):
            aliases[key[len("alias.") :]] = text
        elif name == "-c" and (_GIT_HARMLESS.fullmatch(key) is None or (text.strip() and "pager" in key.lower())):
            is_unknown = is_unknown or text.strip() not in ("cat", "true", "false", "")
    if len(plain) == 1:
        return InnerCommands(is_unknown=is_unknown)
    found = _git_alias(plain, aliases) if plain[1] in aliases else _git_runs(plain)
    return msgspec.structs.replace(found, is_unknown=found.is_unknown or is_unknown)


def _git_alias(plain: Words, aliases: Mapping[str, str]) -> InnerCommands:
    body = aliases[plain[1]]
    if UNKNOWN in body:
        return ANYTHING
    if body.startswith("!"):
        return InnerCommands(scripts=(" ".join([body[1:], *plain[2:]]),))
    others = [f"-c alias.{name}={quote(text)}" for name, text in aliases.items() if name != plain[1]]
    return InnerCommands(scripts=(" ".join(["git", *others, body, *plain[2:]]),))


def quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _git_runs(plain: Words) -> InnerCommands:
    subcommand, rest = plain[1], plain[2:]
    scripts: list[str] = []
    match subcommand:
        case "rebase" | "difftool":
            scripts += _option_values(rest, ("-x", "--exec", "--extcmd"))
        case "bisect" if "run" in rest[:1]:
            return InnerCommands((tuple(rest[1:]),))
        case "submodule" if "foreach" in rest:
            scripts.append(" ".join(word for word in rest[rest.index("foreach") + 1 :] if word != "--recursive"))
        case "filter-branch" | "for-each-repo" | "mergetool" | "fast-export":
            return ANYTHING
        case "config":
            return InnerCommands(is_opaque=any(_GIT_RUNNING_KEY.match(word) for word in rest))
        case _:
            pass
    takes_program = subcommand in ("fetch", "pull", "push", "clone", "ls-remote", "archive", "grep") and any(
        word.startswith(_GIT_RUNNING_OPTIONS) and not (subcommand == "push" and word.startswith("-u")) for word in rest
    )
    is_unknown = (
        subcommand not in _GIT_COMMANDS
        or UNKNOWN in subcommand
        or takes_program
        or any(word.startswith("ext::") for word in rest)
        or any(UNKNOWN in script for script in scripts)
    )
    return InnerCommands(scripts=tuple(script for script in scripts if UNKNOWN not in script), is_unknown=is_unknown)


def _option_values(words: Words, names: tuple[str, ...]) -> Iterator[str]:
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            yield value if equals else (words[at + 1] if at + 1 < len(words) else "")
        elif any(len(short) == 2 and word.startswith(short) and not word.startswith("--") for short in names):
            yield word[2:]


_SPECIAL: Final[Mapping[str, Callable[[Words], InnerCommands]]] = {
    "env": _env,
    "eval": _eval,
    "trap": _trap,
    "find": _find,
    "fd": _find,
    "git": _git,
    "watch": _watch,
    "ssh": _ssh,
    ".": _source,
    "source": _source,
    "alias": _any_command,
    "hash": _any_command,
    "enable": _any_command,
    "complete": _any_command,
    "at": _source,
    "batch": _source,
    "crontab": _source,
}
