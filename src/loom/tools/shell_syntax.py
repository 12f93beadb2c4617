"""The commands that a shell command line runs, read from its syntax tree. Pure: no file is accessed.

`parse_shell` lists every command with its words as the program would receive them: quotes, escapes, assignments and
redirections are removed, and commands inside substitutions, loops, functions and subshells are listed like the others.
A part of a word whose value is known only at run time (`$X`, `$(date)`) is the character UNKNOWN. A line that the
grammar does not cover exactly is not parsed at all: `is_parsed` is False then, and the caller must assume anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

UNKNOWN: Final = "\0"
"""The placeholder for text that is known only at run time. No command line can contain it."""
MAX_COMMAND_CHARS: Final = 100_000
MAX_DEPTH: Final = 100
"""The nesting above which a command line is not parsed."""
MAX_BRACE_WORDS: Final = 64
ArgumentPlace: TypeAlias = Literal["word", "part", "quoted"]
"""Whether a variable is a whole argument, an unquoted part of one, or in double quotes."""

_WORDS: Final = frozenset(
    {
        *("word", "number", "raw_string", "string", "ansi_c_string", "translated_string", "concatenation"),
        *("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"),
        *("brace_expression", "extglob_pattern", "variable_name", "special_variable_name", "regex", "array"),
        *("test_operator", "subscript", "string_content", "file_descriptor", "variable_assignment", "$"),
    }
)
_EXPANSIONS: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
_PLAIN_GAP: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
_JOINED_LINES: Final = re.compile(rb"[^\s;&|(){}<>](?:\\\n)+[^\s;&|(){}<>]")
"""A line that is continued in the middle of a word; the grammar reads two words."""
_ESCAPED: Final = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_STRING: Final = re.compile(r'\\([\n$`"\\])')
_ANSI: Final = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_BRACE_RANGE: Final = re.compile(r"\{[^{}]+\.\.[^{}]+\}")
_GLOB: Final = re.compile(r"[*?\[]")
_BLANK_OR_GLOB: Final = re.compile(r"[\s*?\[]")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECISIVE: Final = re.compile(
    r"PATH|IFS|ENV|BASH_.*|SHELLOPTS|BASHOPTS|PS4|CDPATH|GLOBIGNORE|LD_.*|DYLD_.*|GIT_.*|.*PAGER|.*EDITOR|VISUAL|BROWSER"
    r"|LESS.*|PYTHON.*|PERL.*|RUBY.*|NODE_.*|JAVA_.*|_JAVA.*|GCONV_PATH|HOME|XDG_.*|MAKEFLAGS|RUSTC.*|CARGO_.*|npm_.*"
)
"""Variables that affect which programs run, or which configuration they read."""


class ShellCommand(msgspec.Struct, frozen=True):
    """One simple command. `words` are the program and its arguments, `source` is its text in the command line."""

    words: tuple[str, ...]
    source: str
    assigned: tuple[str, ...] = ()
    """The names of the variables that are set for it."""


class ShellScript(msgspec.Struct, frozen=True):
    """The commands of a command line, and the files that it opens."""

    commands: tuple[ShellCommand, ...] = ()
    files: tuple[str, ...] = ()
    """The targets of redirections, except descriptors."""
    assigned: tuple[str, ...] = ()
    """The names of all variables that it sets."""
    is_parsed: bool = True

    @property
    def changes_meaning(self) -> bool:
        """Whether it sets a variable that affects which programs run."""
        names = (*self.assigned, *(name for command in self.commands for name in command.assigned))
        return any(_DECISIVE.fullmatch(name) for name in names)


UNPARSED: Final = ShellScript(is_parsed=False)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse_shell(command: str, variables: Mapping[str, str] | None = None) -> ShellScript:
    """Return the commands of a shell command line, or UNPARSED if the grammar does not cover all of it.

    `variables` are known values of the environment, used if the command line does not set them itself.
    """
    if len(command) > MAX_COMMAND_CHARS or UNKNOWN in command:
        return UNPARSED
    try:
        data = command.encode()
    except UnicodeEncodeError:
        return UNPARSED
    root = _parser().parse(data).root_node
    if root.has_error or not _is_covered(root, data):
        return UNPARSED
    reading = _Reading(data, root, variables or {})
    try:
        reading.visit(root, 0)
    except _TooHard:
        return UNPARSED
    return ShellScript(tuple(reading.commands), tuple(reading.files), tuple(reading.assigned))


def argument_places(command: str) -> dict[int, ArgumentPlace]:
    """Return where the arguments of commands contain a plain variable such as `$1`, by its offset in bytes. Variables
    elsewhere are left out; nothing is returned if the grammar does not cover all of the command line."""
    if not parse_shell(command).is_parsed:
        return {}
    found: dict[int, ArgumentPlace] = {}
    waiting = [_parser().parse(command.encode()).root_node]
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.type != "simple_expansion" or node.parent is None:
            continue
        place: ArgumentPlace = "word"
        holder = node.parent
        if holder.type == "string" and holder.parent is not None:
            place, holder = "quoted", holder.parent
        if holder.type == "concatenation" and holder.parent is not None:
            place, holder = "part" if place == "word" else place, holder.parent
        if holder.type == "command":
            found[node.start_byte] = place
    return found


class _TooHard(Exception):
    """The tree contains something whose words are unknown."""


def _leaves(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if found.child_count == 0 or found.type in ("string", "raw_string", "ansi_c_string", "heredoc_redirect"):
            yield found
        else:
            waiting.extend(reversed(found.children))


def _is_covered(root: Node, data: bytes) -> bool:
    """Return whether all text except blanks is in some leaf: text that the parser skipped would be missed."""
    end = 0
    for leaf in _leaves(root):
        if leaf.start_byte > end and (
            _PLAIN_GAP.fullmatch(data, end, leaf.start_byte) is None
            or _JOINED_LINES.fullmatch(data, max(end - 1, 0), leaf.start_byte + 1)
        ):
            return False
        end = max(end, leaf.end_byte)
    return _PLAIN_GAP.fullmatch(data, end) is not None


class _Reading:
    """One walk over a tree."""

    def __init__(self, data: bytes, root: Node, variables: Mapping[str, str]) -> None:
        self._data = data
        self.commands: list[ShellCommand] = []
        self.files: list[str] = []
        self.assigned: list[str] = []
        self._values: dict[str, tuple[int, str]] = {}
        for name, value in variables.items():
            mentions, uses = self._mentions(name)
            if mentions == uses:
                self._values[name] = (0, value)
        for name, node, value in self._top_assignments(root):
            self._values[name] = (node.end_byte, value)

    def _top_assignments(self, root: Node) -> Iterator[tuple[str, Node, str]]:
        """Yield variables that are set once, at the top level and unconditionally, to a known text, and not used in any
        other way."""
        for node in root.named_children:
            if node.type != "variable_assignment":
                continue
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name is None or name.type != "variable_name" or b"+=" in self._data[name.end_byte : name.end_byte + 2]:
                continue
            text = self._text(name)
            mentions, uses = self._mentions(text)
            if mentions != uses + 1 or text == "IFS":
                continue
            known = "" if value is None else self._word(value, quoted=True)
            if UNKNOWN not in known:
                yield text, node, known

    def _mentions(self, name: str) -> tuple[int, int]:
        """Return how often a variable's name occurs at all, and how often in an expansion."""
        text = self._data.decode()
        mentions = re.findall(rf"(?<![A-Za-z0-9_]){name}(?![A-Za-z0-9_])", text)
        return len(mentions), len(re.findall(rf"\$\{{?{name}(?![A-Za-z0-9_])", text))

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode()

    def visit(self, node: Node, depth: int) -> None:
        """List the commands in and below `node`."""
        if depth > MAX_DEPTH:
            raise _TooHard
        match node.type:
            case "command" | "unset_command":
                self._command(node)
            case "declaration_command":
                self._declaration(node)
            case "variable_assignment":
                self._assign(node)
            case "file_redirect" | "herestring_redirect":
                self._redirect(node)
            case "for_statement" | "select_statement":
                variable = node.child_by_field_name("variable")
                self.assigned += [self._text(variable)] if variable is not None else []
            case _:
                pass
        for child in node.children:
            self.visit(child, depth + 1)

    def _assign(self, node: Node) -> str:
        name = node.child_by_field_name("name")
        text = _NAME.match(self._text(name)) if name is not None else None
        if text is None:
            raise _TooHard
        if node.parent is None or node.parent.type != "command":
            self.assigned.append(text[0])
        return text[0]

    def _command(self, node: Node) -> None:
        words: list[str] = []
        assigned: list[str] = []
        for child in node.children:
            if child.type == "command_name":
                words += self._expand_argument(child)
            elif child.type == "variable_assignment" and not words:
                assigned.append(self._assign(child))
            elif child.type in _WORDS:
                words += self._expand_argument(child)
            elif child.type not in ("file_redirect", "herestring_redirect", "heredoc_redirect", "subshell", "comment"):
                words.append(self._text(child) if child.child_count == 0 else UNKNOWN)
        if not words:
            self.assigned += assigned
            return
        self.commands.append(ShellCommand(tuple(words), self._text(node), tuple(assigned)))

    def _declaration(self, node: Node) -> None:
        """Read `export`, `declare`, `local` and the like: they set variables and run nothing."""
        words: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                words.append(self._text(child))
            elif child.type in _WORDS or child.child_count == 0:
                text = self._expand_argument(child)
                self.assigned += [word.partition("=")[0] for word in text if _NAME.match(word)][:100]
                words += text
        self.commands.append(ShellCommand(tuple(words), self._text(node)))

    def _redirect(self, node: Node) -> None:
        if node.type == "herestring_redirect":
            return
        target = node.child_by_field_name("destination")
        operator = next((child.type for child in node.children if child.type.startswith(("<", ">", "&"))), "")
        if target is None:
            raise _TooHard
        words = self._expand_argument(target)
        is_descriptor = operator in (">&", "<&", ">&-", "<&-") and re.fullmatch(r"\d+-?|-", "".join(words))
        if not is_descriptor:
            self.files += words

    # Words ------------------------------------------------------------------------------------------------------

    def _expand_argument(self, node: Node) -> list[str]:
        """Return the words that an argument becomes: several by brace expansion or an unquoted variable with blanks."""
        if node.type == "command_name" and node.child_count == 1:
            node = node.children[0]
        if node.type in ("simple_expansion", "expansion"):
            value = self._variable(node)
            return [value] if UNKNOWN in value or _GLOB.search(value) else value.split()
        text = self._word(node, quoted=False)
        source = self._text(node)
        if node.type in ("raw_string", "string", "ansi_c_string"):
            return [text]
        if "{" in source and node.type in ("word", "concatenation", "brace_expression", "command_name"):
            if not any(character in source for character in "'\"\\$`"):  # nothing is quoted
                return _expand_braces(text)
            return [text if source == "{}" else _unless_braced(text)]
        return [text]

    def _word(self, node: Node, *, quoted: bool) -> str:
        match node.type:
            case "raw_string":
                return self._text(node)[1:-1]
            case "ansi_c_string":
                return _ansi(self._text(node)[2:-1])
            case "string" | "translated_string":
                return self._string(node)
            case "string_content":
                return _ESCAPED_IN_STRING.sub(lambda found: "" if found[1] == "\n" else found[1], self._text(node))
            case "simple_expansion" | "expansion":
                value = self._variable(node)
                return value if quoted or not _BLANK_OR_GLOB.search(value) else UNKNOWN
            case "concatenation" | "command_name":
                return self._join_word(node, quoted=quoted)
            case _ if node.type in _EXPANSIONS or node.type in ("extglob_pattern", "array", "subscript"):
                return UNKNOWN
            case _ if node.child_count == 0:
                return _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], self._text(node))
            case _ if any(child.type in _EXPANSIONS for child in node.children):
                return UNKNOWN
            case _:
                return _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], self._text(node))

    def _join_word(self, node: Node, *, quoted: bool) -> str:
        """Return the joined parts of a word, including the text between them."""
        parts: list[str] = []
        end = node.start_byte
        for child in node.children:
            between = self._data[end : child.start_byte].decode()
            parts.append(_ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], between))
            parts.append(self._word(child, quoted=quoted))
            end = child.end_byte
        return "".join(parts) + self._data[end : node.end_byte].decode()

    def _string(self, node: Node) -> str:
        """Return a double-quoted string: everything between its quotes, with its expansions as unknown."""
        start = node.start_byte + (2 if node.type == "translated_string" else 1)
        parts: list[str] = []
        for child in node.named_children:
            if child.type in ("simple_expansion", "expansion") or child.type in _EXPANSIONS:
                parts.append(_in_string(self._data[start : child.start_byte]))
                parts.append(self._word(child, quoted=True))
                start = child.end_byte
        return "".join(parts) + _in_string(self._data[start : node.end_byte - 1])

    def _variable(self, node: Node) -> str:
        names = [child for child in node.named_children if child.type == "variable_name"]
        plain = (f"${self._text(names[0])}", f"${{{self._text(names[0])}}}") if len(names) == 1 else ()
        if self._text(node) not in plain:
            return UNKNOWN
        end, value = self._values.get(self._text(names[0]), (0, UNKNOWN))
        return value if node.start_byte >= end else UNKNOWN


def _in_string(data: bytes) -> str:
    return _ESCAPED_IN_STRING.sub(lambda found: "" if found[1] == "\n" else found[1], data.decode())


def _ansi(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        letter, octal, byte, short, long, control = found.groups()
        if letter:
            return _ANSI_LETTERS[letter]
        if control:
            return chr(ord(control) & 0x1F)
        number = int(octal, 8) if octal else int(byte or short or long, 16)
        return chr(number) if 0 < number < 0x110000 else UNKNOWN

    return _ANSI.sub(character, text)


def _unless_braced(text: str) -> str:
    """Return a word with braces of which some may be quoted: unchanged if nothing could be expanded, else unknown."""
    return text if _BRACES.search(text) is None and _BRACE_RANGE.search(text) is None else UNKNOWN


def _expand_braces(text: str) -> list[str]:
    """Expand the braces of an unquoted word. Ranges and long lists count as unknown."""
    words = [text]
    while len(words) <= MAX_BRACE_WORDS:
        found = next(((at, match) for at, word in enumerate(words) if (match := _BRACES.search(word))), None)
        if found is None:
            return [UNKNOWN if _BRACE_RANGE.search(word) else word for word in words]
        at, match = found
        before, after = words[at][: match.start()], words[at][match.end() :]
        words[at : at + 1] = [before + option + after for option in match[1].split(",")]
    return [UNKNOWN]
