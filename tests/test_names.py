"""Names: one meaning per class name, verbs or nouns for functions, and no retired words where users read."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeGuard

import pytest

from source_trees import FILES, ONE_PROCESS, ROOT, SCRIPT_FOLDERS, SOURCE, nodes_of, python_files, tree_of

pytestmark = ONE_PROCESS
in_every_folder = pytest.mark.parametrize("folder", ["src/loom", *SCRIPT_FOLDERS])

SAME_MEANING: Final = {
    "Decoder": "one per wire module, all of the same protocol",
}
"""Class names that may be defined more than once, and why."""

IRREGULAR: Final = re.compile(
    r"asked|begun|born|bound|bought|broken|brought|built|caught|chosen|cut_off|dealt|done|drawn|driven"
    r"|fallen|felt|found|forgotten|frozen|given|gone|grown|heard|held|hidden|kept|known|laid|left|lent|lit"
    r"|lost|made|meant|met|overridden|overtaken|paid|rebuilt|rewritten|said|seen|sent|shot|shown|sold|sought|spent"
    r"|spoken|stolen|stood|struck|sworn|taken|taught|thought|thrown|told|torn|understood|undone|unread|unsaid|won|worn"
    r"|woven|written"
)
NOT_PARTICIPLES: Final = frozenset(
    {"embed", "exceed", "feed", "heed", "need", "proceed", "red", "seed", "shed", "speed"}
)
ADJECTIVES: Final = re.compile(
    r"absolute|affordable|again|alike|alone|available|away|beside|best|capable|careful|dirty|doubtful|empty|exact"
    r"|exclusive|existing|fitting|flat|foreign|free|fresh|harmless|late|least|legal|lenient|live|long|lossy|lowest"
    r"|missing|near|nearby|new|now|odd|own|patiently|plain|playable|portable|printable|private|quiet|readable|ready"
    r"|recent|roomy|safe|same|sendable|short|small|smaller|soon|stable|tolerant|unique|unknown|unreadable|upright"
    r"|usable|visible|whole|wrong"
)
FUNCTION_WORDS: Final = re.compile(
    r"about|after|anything|at|before|behind|below|between|in|inside|is|like|may|more|nothing|of|on|one|others|rest"
    r"|there|to|under|what|when|where|which|who|why|with|within|without"
)
"""Prepositions, pronouns and auxiliaries. A public method may have such a name, which reads well after its object
(`events.after(seq)`); a private function may not."""
REVIEWED_FUNCTIONS: Final = {"loom.sync:SyncSession.again": "deprecated: the old name of `regenerate`"}
"""Functions with such a name that stay, and why: `module:qualified name`."""


def test_a_class_name_has_one_definition() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for module, node in _top_level():
        for name in _type_names(node):
            found[name].add(module)
    several = {name: sorted(modules) for name, modules in found.items() if len(modules) > 1}
    assert {name: modules for name, modules in several.items() if name not in SAME_MEANING} == {}
    assert set(SAME_MEANING) <= set(several), "an entry of the allow-list that is no longer needed"


SAME_FUNCTION: Final = {
    "get_int": "reads an integer leniently: `content` from a value, `wire` from a field",
    "get_object": "reads an object leniently: `content` from a value, `wire` from a field",
    "lost_files": "the same one, imported late by `runtime`",
    "tool": "`loom.tool` makes a tool of a function; `content.messages.tool` makes a message of results",
}
"""Functions that another room imports and that may be defined more than once, and why."""


def test_a_function_that_another_room_imports_has_one_definition() -> None:
    """Commands and route handlers are named by what a user calls; no other module imports them."""
    modules_of = {_module(path): path for path in FILES}
    defined: dict[str, set[str]] = defaultdict(set)
    for module, path in modules_of.items():
        for node in tree_of(path).body:
            is_handler = _is_command(node) or module.endswith("routes")
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_handler:
                defined[node.name].add(module)
    imported = {
        (node.module, found.name)
        for module, path in modules_of.items()
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[:2] != module.split(".")[:2]
        for found in node.names
    }
    shared = {name for name, modules in defined.items() if any((module, name) in imported for module in modules)}
    several = {name: sorted(defined[name]) for name in shared if len(defined[name]) > 1}
    assert {name: modules for name, modules in several.items() if name not in SAME_FUNCTION} == {}
    assert set(SAME_FUNCTION) <= set(several), "an entry of the allow-list that is no longer needed"


@in_every_folder
def test_no_function_is_named_by_a_bare_participle_adjective_or_preposition(folder: str) -> None:
    """Private and nested functions too: their names are read as often as public ones."""
    found = {key for key, name in _functions(python_files(ROOT / folder)) if _is_bare(name)}
    assert sorted(found - set(REVIEWED_FUNCTIONS)) == []


def test_the_list_of_reviewed_functions_has_no_entry_that_is_no_longer_needed() -> None:
    files = [path for folder in ("src/loom", *SCRIPT_FOLDERS) for path in python_files(ROOT / folder)]
    assert set(REVIEWED_FUNCTIONS) <= {key for key, name in _functions(files) if _is_bare(name)}


@in_every_folder
def test_modules_are_no_gerunds(folder: str) -> None:
    nouns = {"aging", "framing", "grounding", "sampling", "testing"}  # terms of the trade
    names = {path.stem for path in python_files(ROOT / folder)}
    assert sorted(name for name in names if "_" not in name and name.endswith("ing") and name not in nouns) == []


RETIRED: Final = {
    r"\bwaits? for your word\b": "approval pending",
    r"\byour word\b": "your approval",
    r"\bon the line\b": "interactive",
    r"\bwhom to ask\b": "choose a model",
    r"\bthe blind\b|\bblind model": "text-only model",
    r"\bwith eyes\b": "that supports images",
    r"\bput at the end\b": "added at the end",
    r"\bis no address\b": "not a URL",
    r"\bthere is no session\b": "session not found",
    r"\bgive more of its id\b": "use a longer id prefix",
    r"\bbeside each other\b": "alternative answers",
    r"\bhas not the shape\b": "invalid request body",
    r"\bwhatever is left out\b": "even after trimming",
    r"\bnobody\b|\bwhoever\b|\bsomebody\b": "no subject that is a person",
    r"\bit does not reason\b": "not a language model",
    r"\bevery face\b|\ball faces\b|\bfor faces\b|\bthe door\b": "interface, intake",
    r"\bconversation on the line\b": "interactive chat",
    r"(?<!there )\bis no (?:text|conversation|message|tree|node|platform|key|office|HTML|XML|RTF)\b": "is not a …",
    r"\bthere is no such\b": "not found",
    r"\bsaid no\b": "denied",
    r"\bso many\b|\bwhom\b|\bwhomever\b": "plain words",
    r"\bmay not be asked\b": "blocked",
    r"\b(?:file|document|conversation|form|archive|PDF|it) holds\b|\bmay hold secrets\b": "contains",
    r"\bbehind its end\b": "past its end",
    r"\bpicture program\b|\bHEIC pictures\b|\bdescribes pictures\b": "image",
}
"""What users do not read any more, and what they read instead."""

RETIRED_MESSAGES: Final = {
    r"\bfolder brings\b|\bFOLDER brings\b|\} brings\b": "contains files that",
    r"\bany more\b|\bwhat arrived\b|\bwhat was there before\b": "no longer, the partial answer, the previous …",
    r"\bsay something\b|\bleave it unsaid\b|\bwatch it no more\b": "send a message, remove, stop watching",
    r"\bcosts what\b|\bgoes? on in the background\b|\bgo on running\b": "keep running",
    r"\bas no \w+(?: \w+)? (?:does|writes)\b|\bdeeper than any\b": "which is not allowed, too deeply",
    r"\bthat are (?:taken|passed on)\b|\bare taken\.": "the limit is …",
    r"\bin an odd way\b|\bmeans nothing\b|\bleads? nowhere\b": "edit the file, unusual, unreadable",
    r"\bthese exist\b|\bit has: ": "available: …",
    r"\bthere is no (?:page|image)\b|\bnothing found\.": "page 3 does not exist, no results",
    r"\blook at its tree\b|\bgive more digits\b|\bare paid twice\b": "show its tree, use a longer id prefix, billed",
    r"\bis gone\b|\bwas ended\b|\bof this name\b|\bby hand\b": "no longer exists, stopped, has this name",
    r"(?-i:\bkB\b)": "KB, as `size_label` writes it",
    r"(?-i:\b(?:Add|Choose|Create|Install|List|Restore|Show|Start|Store)(?: [a-z]+){1,3}: loom )": "a command in `…`",
    r"\b(?:summaris|recognis|organis|normalis|serialis)(?:e[sd]?|ing|ation)\b|\bcolours?\b|\bcatalogues?\b|\bbehaviours?\b"
    r"|\blicences?\b": "one spelling: summarize, color, catalog, behavior, license",
}
"""The same for messages and labels alone: pages may use some of these words, in other meanings."""

STORED_WORDS: Final = {
    "src/loom/agent/compact.py": "`summarises` is a key in stored metadata",
    "src/loom/providers/spark/documents.py": "words of a question that are not searched for, in both spellings",
}
"""Files with such a word that is not a message, and why."""

USER_DOCUMENTS: Final = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
USER_CODE: Final = (
    "agent",
    "cli",
    "client",
    "compile",
    "config",
    "content",
    "daemon",
    "errors.py",
    "events.py",
    "formats",
    "importers",
    "providers",
    "runtime",
    "store",
    "sync.py",
    "tools",
    "tui",
    "wire",
)


def test_users_read_no_retired_words() -> None:
    pattern = {re.compile(words, re.IGNORECASE): instead for words, instead in RETIRED.items()}
    found = [
        f"{where}: {found.group(0)!r} ({instead})"
        for where, text in (*_strings(), *_documents())
        for words, instead in pattern.items()
        if (found := words.search(text))
    ]
    assert found == []


def test_messages_use_common_words_and_one_spelling() -> None:
    pattern = {re.compile(words, re.IGNORECASE): instead for words, instead in RETIRED_MESSAGES.items()}
    found = [
        (where, f"{where}: {found.group(0)!r} ({instead})")
        for where, text in _strings()
        for words, instead in pattern.items()
        if (found := words.search(text))
    ]
    assert [text for where, text in found if where.partition(":")[0] not in STORED_WORDS] == []
    assert set(STORED_WORDS) <= {where.partition(":")[0] for where, _ in found}, "an entry that is no longer needed"


RETIRED_ON_PAGES: Final = re.compile(
    r"\b(?:pictures?|blind|faces?|anew|mend(?:s|ed)?)\b|\b(?:is|are|was|were) told\b"
    r"|\bgoes on (?:with|where|from|behind)\b|\bfolder brings\b"
    r"|\b(?:summaris|recognis|organis|normalis|authoris|synthesis)(?:e[sd]?|ing|ation)\b|\bcolours?\b|\bcatalogues?\b"
    r"|\blicences?\b|\bbehaviours?\b",
    re.IGNORECASE,
)
"""Words that pages do not use. They say: image, text-only, interface, again, repair, continue; in one spelling: color,
summarize."""

GENERATED_PAGES: Final = frozenset({"cli.md", "config.md", "errors.md", "events.md", "reference.md"})
"""Pages with texts of the code, which has tests of its own. Decisions are dated and stay as they were written."""


def test_pages_use_common_words() -> None:
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED_PAGES]
    pages += [ROOT / name for name in (*USER_DOCUMENTS, "CHANGELOG.md", "tests/README.md", "web/README.md")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word.group(0)}"
        for path in pages
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (word := RETIRED_ON_PAGES.search(re.sub(r"`[^`]*`", "", line)))
    ]
    assert found == []


BANNED_IN_DOCSTRINGS: Final = re.compile(
    r"\b(?:whoever|whomever|whom|nobody|somebody|so many)\b|\b(?:is|are|was|were|be|been) told\b", re.IGNORECASE
)
"""The old voice: a program has no persons in it. Name the process, the caller, the model or the user."""


@in_every_folder
def test_docstrings_and_comments_speak_plainly(folder: str) -> None:
    documentation = _documentation(python_files(ROOT / folder))
    assert [f"{where}: {text[:80]}" for where, text in documentation if BANNED_IN_DOCSTRINGS.search(text)] == []


@pytest.mark.parametrize("folder", SCRIPT_FOLDERS)
def test_docstrings_and_comments_of_scripts_use_common_words(folder: str) -> None:
    """The words of pages: what a benchmark prints and documents is quoted there."""
    found = [
        f"{where}: {word.group(0)}"
        for where, text in _documentation(python_files(ROOT / folder))
        if (word := RETIRED_ON_PAGES.search(re.sub(r"`[^`]*`", "", text)))
    ]
    assert found == []


def _documentation(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Docstrings of modules, classes, functions and fields, and comments."""
    for path in files:
        helps = {id(node.body[0]) for node in nodes_of(path) if _is_command(node)}
        for node in nodes_of(path):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in helps:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", str(node.value.value)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
            if token.type == tokenize.COMMENT:
                yield f"{path.relative_to(ROOT)}:{token.start[0]}", token.string


def _top_level() -> Iterator[tuple[str, ast.stmt]]:
    for path in FILES:
        for node in tree_of(path).body:
            yield _module(path), node


def _type_names(node: ast.stmt) -> Iterator[str]:
    """The classes, and the names in CamelCase that are assigned: aliases of types."""
    match node:
        case ast.ClassDef(name=name):
            names = [name]
        case ast.Assign(targets=targets):
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            names = [name]
        case _:
            names = []
    for name in names:
        if re.fullmatch(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", name):
            yield name


def _functions(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in files:
        yield from _functions_in(tree_of(path), f"{_module(path)}:")


def _functions_in(parent: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(parent):
        match node:
            case ast.ClassDef(name=name):
                yield from _functions_in(node, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, name
                yield from _functions_in(node, f"{prefix}{name}.")
            case ast.expr():  # no function is defined in an expression
                pass
            case _:
                yield from _functions_in(node, prefix)


def _is_bare(name: str) -> bool:
    bare = name.lstrip("_")
    if IRREGULAR.fullmatch(bare) or ADJECTIVES.fullmatch(bare) or (name != bare and FUNCTION_WORDS.fullmatch(bare)):
        return True
    return bare.isalpha() and bare.endswith("ed") and bare not in NOT_PARTICIPLES


def _strings() -> Iterator[tuple[str, str]]:
    """String constants that are not documentation of the code: errors, notices, labels, and the help of commands."""
    for path in FILES:
        if path.relative_to(SOURCE).parts[0] not in USER_CODE:
            continue
        helps = {id(node.body[0]) for node in nodes_of(path) if _is_command(node)}
        documentation = {
            id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr) and id(node) not in helps
        }
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def _is_command(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether the docstring of a function is the help of a command."""
    return isinstance(node, ast.FunctionDef) and any(
        re.search("command|group", ast.unparse(decorator)) for decorator in node.decorator_list
    )


def _documents() -> Iterator[tuple[str, str]]:
    pages = [ROOT / name for name in USER_DOCUMENTS] + sorted((ROOT / "docs").rglob("*.md"))
    for path in (*pages, *sorted((ROOT / "web" / "src").rglob("*.tsx"))):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if path.suffix == ".tsx" and line.lstrip().startswith("//"):
                continue
            yield f"{path.relative_to(ROOT)}:{number}", line


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent if SOURCE in path.parents else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
