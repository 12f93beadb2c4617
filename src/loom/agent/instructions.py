"""Project instructions: the contents of `AGENTS.md` files, added to the system prompt.

The user's own file comes first, then those from the outermost folder of the project down to the workspace. They are
read when a session starts; later changes are reported like those of any tracked file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.content.blocks import clean_text
from loom.content.media import size_label
from loom.errors import MediaError
from loom.formats.text import decode_text, encoding_of
from loom.tools.workspace import INSTRUCTION_FILES, is_foreign, open_file, visible_name

MAX_FILE_BYTES: Final = 32_000
MAX_BYTES: Final = 64_000
FOREIGN: Final = "{} belongs to another user and was not read as instructions; to read it, run `loom trust add`."


class InstructionFile(msgspec.Struct, frozen=True):
    place: str
    """The name of the file as a tracked file: relative to the workspace if it is inside, absolute otherwise."""
    text: str
    """The whole text, also if the prompt shows only its beginning."""


class Instructions(msgspec.Struct, frozen=True):
    files: tuple[InstructionFile, ...] = ()
    notices: tuple[str, ...] = ()


def with_instructions(system: str, files: Sequence[InstructionFile]) -> str:
    """Return the system prompt followed by the contents of the files. If there is not room for all, the files nearest
    to the workspace (the last ones) take precedence."""
    shown: list[str] = []
    room = MAX_BYTES
    for file in reversed(files):
        data = file.text.encode()
        most = min(MAX_FILE_BYTES, room)
        if most <= 0:
            break
        text = file.text if len(data) <= most else f"{data[:most].decode('utf-8', 'ignore')}\n[truncated]"
        shown.insert(0, f"[instructions: {visible_name(file.place)}]\n{text.strip()}")
        room -= min(len(data), most)
    return "\n\n".join(part for part in (system, *shown) if part)


def read_instructions(
    workspace: Path,
    own_folder: Path | None,
    is_trusted: Callable[[Path], bool] = lambda _: False,
    *,
    is_refused: bool = False,
) -> Instructions:
    """Read the instruction files. A file that is binary or a secret, a link that leads out of the project, and a file
    of another user in a folder that is not trusted are left out with a notice. With `is_refused`, only the user's own
    file is read."""
    workspace = workspace.resolve()
    own = own_folder.resolve() if own_folder is not None else None
    found: list[InstructionFile] = []
    notices: list[str] = []
    for root, folder in _folders(workspace, own_folder):
        name = next((name for name in INSTRUCTION_FILES if (folder / name).is_file()), None)
        if name is None:
            continue
        if folder != own and is_foreign(folder / name) and not is_trusted(folder):
            notices.append(FOREIGN.format(visible_name(str(folder / name))))
            continue
        if folder != own and is_refused:
            notices.append(f"{visible_name(str(folder / name))} was not read: you do not trust this folder.")
            continue
        text, notice = _read(root, folder / name)
        if notice:
            notices.append(notice)
        if text.strip():
            path = folder / name
            place = str(path.relative_to(workspace)) if folder == workspace else str(path)
            found.append(InstructionFile(place, text))
    return Instructions(tuple(found), tuple(notices))


def _folders(workspace: Path, own_folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield pairs of a folder and the root that its file may not lead out of: the user's own folder, then the folders
    from the top of the project down to the workspace. Without a repository, the workspace is the whole project."""
    if own_folder is not None:
        yield own_folder.resolve(), own_folder.resolve()
    above = [workspace, *workspace.parents]
    top = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), 0)
    for folder in reversed(above[: top + 1]):
        yield above[top], folder


def _read(root: Path, path: Path) -> tuple[str, str]:
    """Return the text and a notice, either of which may be empty."""
    name = visible_name(path.name)
    try:
        with open_file(root, str(path)) as opened:
            if not opened.inside or opened.sensitive:
                return "", f"{name} is outside the project or may contain secrets; it was not read as instructions."
            data = opened.file.read(MAX_BYTES * 4)
            size = opened.size_bytes
    except MediaError as error:
        return "", error.message
    if data and encoding_of(data) is None:
        return "", f"{name} is not a text file and was not read as instructions."
    is_cut = size > MAX_FILE_BYTES
    notice = f"{name} has {size_label(size)}; only its beginning is in the instructions." if is_cut else ""
    return clean_text(decode_text(data, name)[0]) if data else "", notice
