"""The `/` commands: their names, help texts and actions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from loom.tui.completion_list import CompletionEntry, rank


class TuiCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command. `action` names the method `command_ACTION` of the chat screen, which receives the text after the
    command's name."""

    name: str
    help: str
    action: str
    arguments: str = ""
    aliases: tuple[str, ...] = ()


COMMANDS: Final = (
    TuiCommand(name="model", arguments="[NAME]", help="choose a model, with what it would receive", action="model"),
    TuiCommand(name="think", arguments="[LEVEL]", help="how much the model thinks (Alt+T)", action="think"),
    TuiCommand(
        name="agent", arguments="[NAME]", help="list the agents, or use one", action="agent", aliases=("agents",)
    ),
    TuiCommand(name="context", help="what the next request contains (Ctrl+X)", action="context"),
    TuiCommand(
        name="sessions", help="open another conversation (Ctrl+S)", action="sessions", aliases=("resume", "continue")
    ),
    TuiCommand(name="new", help="start a new conversation", action="new", aliases=("clear",)),
    TuiCommand(name="attach", arguments="FILE", help="attach a file; report.pdf#3-7 for pages", action="attach"),
    TuiCommand(name="view", help="show the newest document page by page", action="view", aliases=("pdf",)),
    TuiCommand(name="paste", help="attach the image on the clipboard (Ctrl+V)", action="paste"),
    TuiCommand(name="retry", arguments="[MODEL]", help="regenerate the last answer, as a sibling", action="retry"),
    TuiCommand(
        name="edit", help="go back to an earlier message and edit it (Esc Esc)", action="rewind", aliases=("rewind",)
    ),
    TuiCommand(
        name="work",
        help="the agent's todo list and background processes (F2)",
        action="work",
        aliases=("todos", "processes", "ps"),
    ),
    TuiCommand(name="undo", arguments="[STEP]", help="undo what the agent changed in files", action="undo"),
    TuiCommand(name="fork", help="continue in a new session; this one is unchanged", action="fork"),
    TuiCommand(name="tree", help="show or hide the branches (Ctrl+T)", action="tree"),
    TuiCommand(name="compact", help="summarize the conversation; everything stays in the tree", action="compact"),
    TuiCommand(name="rename", arguments="TITLE", help="rename this conversation", action="rename"),
    TuiCommand(name="usage", help="tokens and cost of this conversation", action="usage"),
    TuiCommand(
        name="permissions", arguments="[ask|auto|plan|deny]", help="what tools may do (Shift+Tab)", action="permission"
    ),
    TuiCommand(name="copy", help="copy the last answer", action="copy"),
    TuiCommand(name="export", arguments="[FILE]", help="write the conversation as Markdown", action="export"),
    TuiCommand(name="theme", arguments="[NAME]", help="change the colors", action="theme"),
    TuiCommand(name="images", help="how images are shown here", action="images"),
    TuiCommand(name="help", help="keys and commands (F1)", action="help", aliases=("keymap",)),
    TuiCommand(name="quit", help="exit; continue later with `loom -c` (Ctrl+D)", action="quit", aliases=("exit",)),
)


def find_command(name: str) -> TuiCommand | None:
    return next((it for it in COMMANDS if name == it.name or name in it.aliases), None)


def similar_command(name: str) -> str:
    """Return the name of the command that is most similar to a mistyped one; empty if none is."""
    return next(iter(get_close_matches(name, [command.name for command in COMMANDS], n=1, cutoff=0.75)), "")


def complete_command(query: str, commands: Sequence[TuiCommand] = COMMANDS) -> list[CompletionEntry]:
    """Return the commands whose name or alias matches, the best first."""
    by_name = {name: it for it in commands for name in (it.name, *it.aliases)}
    names = rank(query, by_name) if query else [it.name for it in commands]
    chosen = {by_name[name].name: by_name[name] for name in names}
    return [
        CompletionEntry(f"/{it.name}{' ' if it.arguments else ''}", f"/{it.name} {it.arguments}".rstrip(), it.help)
        for it in chosen.values()
    ]
