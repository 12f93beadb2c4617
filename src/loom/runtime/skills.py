"""Skills and custom commands: folders with `SKILL.md`, and Markdown files that are slash commands.

The folders of other agents (`.claude`, `.agents`, `.codex`, `.opencode`) are searched, too, so that existing files
work. Files of a project are used only in a trusted folder; the user's own always are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.config import Config
from loom.config.front_matter import read_front_matter
from loom.config.loader import user_folder
from loom.config.trust import SKILL_FOLDERS
from loom.content.blocks import ToolResult
from loom.errors import ToolError
from loom.tools.base import Tool, ToolContext, text_result
from loom.tools.shell_arguments import PLACEHOLDER, split_arguments
from loom.tools.workspace import COMMAND_FOLDERS, SHARED_FOLDERS

HOME_FOLDERS: Final = (".claude", ".agents", ".codex", ".config/opencode")
SKILL_FILE: Final = "SKILL.md"
MAX_SKILLS: Final = 100
MAX_DESCRIPTION_CHARS: Final = 1_024

_INSERTION: Final = re.compile(r"(?<![\w`])!`([^`\n]+)`")
"""A shell command whose output is inserted, as in Claude Code and OpenCode."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions that an agent can read when it needs them."""

    name: str
    description: str
    file: Path
    text: str


class OwnCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command. Its text is sent, with the arguments in place of `$ARGUMENTS`, single words, quoted as in a
    shell, in place of `$1` to `$9`, and the output of shell commands in place of !`COMMAND`."""

    name: str
    description: str
    text: str
    file: Path
    allowed_tools: Any = None
    """`allowed-tools` of the front matter, as it is written."""

    def shell_commands(self) -> tuple[str, ...]:
        """Return the shell commands of the file, as written, without repetition. They are found before arguments are
        inserted, so no argument can add one."""
        return tuple(dict.fromkeys(_INSERTION.findall(self.text)))

    def fill(self, arguments: str, outputs: Mapping[str, str] | None = None) -> str:
        """Return the message for these arguments. `outputs` has the output of each shell command; without it, commands
        stay as they are written."""
        words = split_arguments(arguments)

        def value(found: re.Match[str]) -> str:
            at = int(found[1]) - 1 if found[1] else None
            return arguments if at is None else words[at] if at < len(words) else ""

        parts = _INSERTION.split(self.text)  # texts and, between them, commands
        has_place = PLACEHOLDER.search(self.text) is not None
        # Outputs and arguments are inserted side by side and never read again: neither can contain the other's marks.
        parts[::2] = [PLACEHOLDER.sub(value, text) for text in parts[::2]]
        parts[1::2] = [f"!`{command}`" if outputs is None else outputs[command] for command in parts[1::2]]
        filled = "".join(parts)
        return filled if has_place or not arguments else f"{filled}\n\n{arguments}"


def find_skills(config: Config, workspace: Path) -> dict[str, Skill]:
    """Return the skills by name; a skill of the workspace takes precedence over one of the user with the same name."""
    found: dict[str, Skill] = {}
    for place in shared_folders(config, workspace, SKILL_FOLDERS):
        for folder in _entries(place):
            if (folder / SKILL_FILE).is_file() and len(found) < MAX_SKILLS:
                facts, text = read_front_matter(folder / SKILL_FILE)
                name = str(facts.get("name") or folder.name)
                description = " ".join(str(facts.get("description") or "").split())[:MAX_DESCRIPTION_CHARS]
                found[name] = Skill(name=name, description=description, file=folder / SKILL_FILE, text=text)
    return dict(sorted(found.items()))


def find_commands(config: Config, workspace: Path) -> dict[str, OwnCommand]:
    """Return the slash commands of the user and of the workspace by name; a file `a/b.md` is the command `a:b`."""
    found: dict[str, OwnCommand] = {}
    for place in shared_folders(config, workspace, COMMAND_FOLDERS):
        for file in sorted(place.rglob("*.md"))[:MAX_SKILLS]:
            if file.is_file():
                facts, text = read_front_matter(file)
                name = ":".join(file.relative_to(place).with_suffix("").parts)
                found[name] = OwnCommand(
                    name=name,
                    description=str(facts.get("description") or ""),
                    text=text.strip(),
                    file=file,
                    allowed_tools=facts.get("allowed-tools"),
                )
    return dict(sorted(found.items()))


def skill_lines(skills: Iterable[Skill]) -> str:
    """Return the part of the system prompt about skills; empty if there are none."""
    lines = [f"- {skill.name}: {skill.description or 'no description'}" for skill in skills]
    head = "# Skills\nInstructions for special tasks. Read one with use_skill before you do what it is for.\n"
    return head + "\n".join(lines) if lines else ""


def skill_tool(config: Config) -> Tool:
    """Return the tool that reads a skill."""

    async def use_skill(context: ToolContext, name: str) -> ToolResult:
        """Read the instructions of a skill.

        name: the name of the skill, from the list of skills
        """
        skills = find_skills(config, context.workspace)
        found = skills.get(name)
        if found is None:
            raise ToolError(f"Skill {name[:80]!r} not found; available: {', '.join(skills) or 'none'}")
        return text_result(f"{found.text.strip()}\n\n[Other files of this skill are in {found.file.parent}]")

    return Tool(use_skill, reads_only=True)


def shared_folders(config: Config, workspace: Path, kinds: Sequence[str]) -> Iterator[Path]:
    """Yield the folders of the user, then those of the workspace if it is trusted."""
    environ: Mapping[str, str] = config.provenance.environ
    roots = [user_folder(environ, workspace)]
    if home := environ.get("HOME", ""):
        roots += [Path(home) / name for name in HOME_FOLDERS]
    for root in roots:
        yield from (root / kind for kind in reversed(kinds))
    brought = [workspace / name / kind for name in SHARED_FOLDERS for kind in reversed(kinds)]
    brought = [place for place in brought if place.is_dir()]
    if brought and config.may_instruct(workspace):
        yield from brought


def _entries(place: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(place) if entry.is_dir())
    except OSError:  # missing, or not readable
        return []
