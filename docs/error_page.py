"""`docs/errors.md`: tree, codes and fields are read from `loom.errors`; only what to do about each is written here."""

from __future__ import annotations

import inspect
from textwrap import fill
from typing import Final

from loom import errors
from loom.cli.shared.exit_codes import MEANINGS, exit_code
from loom.errors import LoomError

_INTRODUCTION: Final = """\
# Errors

Whatever Loom refuses, it refuses with one of these. Each has a `code` that never changes (for programs), one sentence
(for people) and, where there is something to do, a `hint`; `str(error)` is both. Any other exception that comes out of
Loom is a bug in Loom.

- In a program they are raised. `except loom.LoomError` catches all of them.
- In a turn nothing is raised: the stream ends with [TurnFailed](events.md#turnfailed), which carries code, sentence and
  hint; `session.send()` raises that. What a tool raises becomes its result, and the turn goes on.
- On the command line the sentence goes to stderr, and the [exit code](cli.md#exit-codes) says which kind it was.

This page is made by `make docs`.
"""

_MEANING: Final = {
    "ContentError": "A value that breaks a rule of the content model: an empty text, a call without an id, a role that "
    "cannot hold a block, JSON that is no message. It is a `ValueError`, too.",
    "ConfigError": "A setting, a file of settings or the name of a model cannot be understood. The sentence names the "
    "file, the key and what was expected.",
    "StoreError": "The root of everything that the store can say.",
    "NotFound": "There is no session, message or medium of this name or id.",
    "Corrupt": "What is stored is not what was written: a damaged row, a medium whose bytes lost their digest, a file "
    "that is no database. It is left as it is and never sent.",
    "NotAuthorised": "There is no key for the service, or the service does not accept it.",
    "RateLimited": "The service counts too many requests. Loom has already waited and asked again as often as it may; "
    "`retry_after` is the pause that the service asks for, in seconds.",
    "Overloaded": "The service is there and has no room. Loom has already asked again.",
    "TooManyBytes": "The request was too large in bytes. Loom has already tried smaller ones.",
    "ContextOverflow": "The conversation was too long in tokens. Loom has already tried shorter ones.",
    "MediaRefused": "The service could not take an image, document or sound; `digests` says which.",
    "WireError": "The service said something that its protocol does not know, or sent a damaged stream.",
    "ToolError": "A tool could not do what it was asked. It becomes a result that the model reads, marked as an error, "
    "and never leaves a turn.",
}
"""For the classes that say nothing of themselves."""

_ADVICE: Final = {
    "LoomError": "Catch it where any failure of Loom should be told to a person, and show `str(error)`.",
    "ContentError": "Mend the value that the sentence names. Conversations from elsewhere: `loom import`.",
    "KeyReused": "Send a new key with each new message; repeat a key only with the same message.",
    "ApprovalGone": "Nothing to do: another client has answered it, or the turn is over.",
    "ConfigError": "Mend the key in that file. `loom config show --origin` tells where every value comes from.",
    "BudgetSpent": "Raise `budget.session_usd` or `budget.day_usd`, or wait until tomorrow. The message is stored, and "
    "can be answered then.",
    "MediaError": "Catch it where any file that a person gives may be refused. Nothing was stored.",
    "Unreadable": "Open the file in its own program, save it again and attach the new one.",
    "Unsupported": "Convert it to a kind that Loom takes (PNG, JPEG, PDF, DOCX, text …); the hint says how.",
    "TooLarge": "Attach the part that matters (fewer pages, a crop, a smaller copy), or raise the limit in the "
    "[configuration](config.md).",
    "Encrypted": "Save a copy without a password and attach that.",
    "StoreError": "Catch it where the store may fail as a whole.",
    "NotFound": "List what there is: `loom sessions`, or the tool `look` without arguments.",
    "NotSent": "Open the medium in another form, or ask for its text.",
    "Newer": "Upgrade Loom. Older versions leave what they do not know untouched.",
    "Corrupt": "Run `loom doctor`: it says what is damaged and what can be mended. Other sessions are not affected.",
    "Conflict": "Load the session again and repeat what you did: nothing of it was stored.",
    "Stale": "Load the session again, look at what has changed, and repeat the change with its new revision.",
    "Full": "Make room (`loom sweep` deletes media that nothing refers to) and try again. Nothing is stored by halves.",
    "ReadOnly": "Make the folder writable for you, or set `home` (or `LOOM_HOME`) to one that is.",
    "Unreachable": "Check that the database of `[store]` or the bucket of `[media]` runs and can be reached from here.",
    "BlobsUnavailable": "Check that the bucket or folder of `[media]` can be reached. Nothing is lost: media that "
    "cannot be read now can be read again once it answers. `media.timeout_seconds` says how long Loom waits.",
    "ExtraMissing": "Run the command of the hint. Everything that does not need the part works without it.",
    "ProviderError": "Catch it where any answer of a service may fail. Another model can go on with the same session.",
    "NotAuthorised": "`loom keys set`, or set the environment variable that the sentence names.",
    "RateLimited": "Wait that long, or switch to another model.",
    "Overloaded": "Try again in a while, or switch to another model.",
    "Unavailable": "Try again; for a local server, start it. What arrived of a cut answer is kept in the session.",
    "Refused": "Read the service's own words in the sentence: the name of the model, the plan, its rules.",
    "TooManyBytes": "Hide large media of the last turns, or attach smaller ones.",
    "ContextOverflow": "Shorten the last message, or switch to a model with a larger window.",
    "MediaRefused": "Nothing, as a rule: the medium is quarantined for that service, its text is sent instead, and the "
    "step is tried again. You meet the error only where nothing was left to take out.",
    "CapabilityMissing": "Nothing, as a rule: the text is sent instead and the model is remembered as unable. To have "
    "the image seen, switch to a model that can.",
    "OutputInvalid": "The answer is in the session. Ask again, choose another model, or make the schema simpler.",
    "WireError": "Try again. If it stays, check that the address is that of the protocol (`base_url`).",
    "ToolError": "Raise it in your own tools with a sentence that tells the model what to do differently.",
}

_TURNS: Final = {
    "turn.limit": "The turn reached its limit of steps, time or money. What was done is kept; say “go on” to continue.",
    "turn.cancelled": "The turn was cancelled. Its messages are kept, and calls without a result are answered.",
    "turn.continued": "A notice, not an error: the turn goes on after a restart or a broken connection. Words "
    "that were shown are kept, and calls that may not run twice do not.",
    "turn.interrupted": "The process ended in the middle of it. It is closed when the session goes on: calls without a "
    "result are answered with “interrupted”, and nothing is run twice.",
}
"""Codes of TurnFailed that are nobody's mistake."""


def page() -> str:
    classes = error_classes()
    silent = [found.__name__ for found in classes if found.__name__ not in _ADVICE]
    if silent:
        raise LookupError(f"docs/error_page.py says nothing about {', '.join(silent)}")
    return "\n".join(
        [
            _INTRODUCTION,
            "## The tree",
            "",
            "```text",
            _tree(),
            "```",
            "",
            "## One by one",
            "",
            *map(_section, classes),
            *_turns(),
        ]
    )


def error_classes() -> list[type[LoomError]]:
    """In the order of the file, which is that of the tree."""
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, LoomError)]
    return [value for value in found if value.__module__ == errors.__name__]


def _turns() -> list[str]:
    rows = [f"| `{code}` | {meaning} |" for code, meaning in _TURNS.items()]
    why = "A turn may also end without an error. [TurnFailed](events.md#turnfailed) then carries one of these codes:"
    return ["## Turns that ended", "", why, "", "| code | meaning |", "|---|---|", *rows, ""]


def _tree() -> str:
    lines = inspect.cleandoc(errors.__doc__ or "").splitlines()
    first = next(at for at, line in enumerate(lines) if line.strip() == "LoomError")
    last = next(at for at in range(first, len(lines)) if not lines[at].strip())
    return inspect.cleandoc("\n".join(["", *lines[first:last]]))


def _section(error: type[LoomError]) -> str:
    name = error.__name__
    own_words = vars(error).get("__doc__")
    meaning = inspect.cleandoc(own_words) if own_words else _MEANING[name]
    status = exit_code(error("x"))
    above = error.__mro__[1].__name__ if issubclass(error.__mro__[1], LoomError) else ""
    kind = f" · a [{above}](#{above.lower()})" if above else ""
    paragraphs = [
        f"### {name}",
        f"`{error.code}`{kind} · exit code {status} ({MEANINGS[status].partition(':')[0]})",
        " ".join([meaning, *_fields(error)]),
        f"*What to do:* {_ADVICE[name]}",
    ]
    return "\n".join(f"{fill(text, 120, break_on_hyphens=False, break_long_words=False)}\n" for text in paragraphs)


def _fields(error: type[LoomError]) -> list[str]:
    """What an error of this kind carries besides its sentence and its hint, where it is the first to carry it."""
    if "__init__" not in vars(error):
        return []
    given = inspect.signature(error.__init__).parameters.values()
    named = [found for found in given if found.kind is found.KEYWORD_ONLY and found.name != "hint"]
    return [f"Carries {', '.join(f'`{found.name}: {found.annotation}`' for found in named)}."] if named else []
