"""Config: all settings after merging, with where each came from. What the rest of Loom reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from loom.config import references
from loom.config.approval import ProjectApproval, decide
from loom.config.entries import Entry, Origin, Source
from loom.config.schema import Action, Settings
from loom.config.secret import Secret, printable
from loom.config.shape import Names, Shape, Table, key_text, shape
from loom.config.sources import home_folder
from loom.context.policy import Policy
from loom.errors import ConfigError
from loom.formats.facts import Limits

_NOTHING: Final = object()


class Shown(NamedTuple):
    """A row of `loom config show`."""

    key: str
    value: str
    origin: Origin | None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a Config remembers of its sources: the entry that won at each path, and the project's word on approvals."""

    entries: Mapping[tuple[str, ...], Entry] = {}
    project_entries: tuple[Entry, ...] = ()
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)

    def __repr__(self) -> str:
        return f"Provenance({len(self.entries)} entries)"


class Config(Settings, frozen=True, kw_only=True):
    """The settings in force. `Config()` is the defaults; `load_config` reads the layers.

    Two are equal when their settings are, whatever files they came from.
    """

    warnings: tuple[str, ...] = ()
    project_approval: ProjectApproval = ProjectApproval()
    provenance: Provenance = msgspec.field(default_factory=Provenance)

    def __repr__(self) -> str:
        fields = (f"{name}={printable(getattr(self, name))}" for name in Settings.__struct_fields__)
        return f"Config({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        names = (*Settings.__struct_fields__, "project_approval")
        return isinstance(other, Config) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # it holds tables

    def origin(self, *path: str) -> Origin:
        """Where the value at `path` came from: `config.origin("server", "port")`."""
        entry = self.provenance.entries.get(path)
        return entry.origin() if entry else Origin(layer="default")

    def show(self, *, origins: bool = True) -> list[Shown]:
        """Every setting, printable; entries of your own (models, agents, …) with what they set.

        `approval` keys can appear twice: a project's are in force beside yours.
        """
        entries = self.provenance.entries
        rows: list[Shown] = []
        for path, value, is_blank in _leaves(self, shape(), ()):
            if path in entries or not is_blank:
                rows.append(Shown(key_text(path), printable(value), self.origin(*path) if origins else None))
        for entry in self.provenance.project_entries:
            value = getattr(self.project_approval, entry.path[-1])
            rows.append(Shown(key_text(entry.path), printable(value), entry.origin() if origins else None))
        return rows

    def secret(self, *path: str) -> str:
        """The secret or address at `path`, references followed: `config.secret("models", "fast", "api_key")`.

        Empty when it is not set. Only this reads `{env:…}` and `{file:…}`, so a missing one hurts only who needs it.
        """
        value = _at(self, path)
        if not isinstance(value, Secret):
            raise TypeError(f"{key_text(path)} is no secret")
        return references.follow(value.written, self._entry(path), self.provenance.environ)

    def secrets(self, *path: str) -> dict[str, str]:
        """A table of secrets: `config.secrets("models", "fast", "headers")`."""
        return {name: self.secret(*path, name) for name in cast("Mapping[str, Secret]", _at(self, path))}

    def system_prompt(self, agent_id: str) -> str:
        """The text of an agent's system prompt, read from its file if it names one."""
        return references.prompt_text(self.agents[agent_id].system, self._entry(("agents", agent_id, "system")))

    def action_for(self, tool: str, *subjects: str) -> Action:
        """What to do about a call; `subjects` is what it is about (commands, paths, URLs); the strictest counts."""
        return decide(self.approval, self.project_approval, tool, subjects or ("",))

    def media_limits(self) -> Limits:
        """What the door lets in."""
        return Limits(
            max_text_bytes=self.documents.max_text_bytes,
            max_image_bytes=self.images.max_size_bytes,
            max_pdf_bytes=self.documents.max_pdf_bytes,
            max_office_bytes=self.documents.max_office_bytes,
            max_audio_bytes=self.audio.max_size_bytes,
            max_pixels=self.images.max_pixels,
            max_frames=self.images.max_frames,
            max_expanded_bytes=self.documents.max_expanded_bytes,
            deadline_seconds=self.worker.deadline_seconds,
            conversion_seconds=self.worker.conversion_seconds,
            ocr_seconds=self.worker.ocr_seconds,
            worker_memory_bytes=self.worker.memory_bytes,
        )

    def context_policy(self) -> Policy:
        """How old and large things are treated."""
        context = self.context
        return Policy(
            aging=context.aging,
            full_turns=context.full_turns,
            low_turns=context.low_turns,
            keep_turns=context.keep_turns,
            low_side_px=self.images.low_res_size,
            max_side_px=self.images.max_side,
            max_images_per_message=self.images.max_per_message,
            max_images_per_session=self.images.max_per_session,
            page_images=self.documents.pages_per_read,
            max_tokens=context.max_tokens,
            max_bytes=context.max_bytes,
            max_images=context.max_images,
            max_pages=context.max_pages,
        )

    def data_folder(self) -> Path:
        """Where sessions and media are kept, unless their URLs say otherwise."""
        if self.home:
            return self._home()
        import platformdirs

        require_home()
        return platformdirs.user_data_path("loom")

    def state_folder(self) -> Path:
        """Where this machine's own files are kept, such as the daemon's token."""
        if self.home:
            return self._home() / "state"
        import platformdirs

        require_home()
        return platformdirs.user_state_path("loom")

    def token_file(self) -> Path:
        """Holds the word that opens the daemon of this machine."""
        return self.state_folder() / "token"

    def daemon_file(self) -> Path:
        """Says where the daemon of this machine listens."""
        return self.state_folder() / "daemon.json"

    def _home(self) -> Path:
        return absolute(self.home, self._entry(("home",)).source.folder)

    def _entry(self, path: tuple[str, ...]) -> Entry:
        """Where the value came from; one that was given in code counts as a flag."""
        given = Entry(path=path, value=None, source=Source(layer="flags", folder=Path()), written_at=path)
        return self.provenance.entries.get(path, given)


def absolute(written: str, folder: Path) -> Path:
    """A folder as a person writes it (`~/x`, `x`), made whole."""
    try:
        return (folder / Path(written).expanduser()).absolute()
    except RuntimeError:
        raise ConfigError(f"the home folder in {written} is not known.", hint="Write the whole path.") from None


def require_home() -> None:
    if home_folder() is None:
        raise ConfigError("there is no home folder to keep anything in.", hint="Set LOOM_HOME to a folder.")


def _at(config: Config, path: tuple[str, ...]) -> object:
    value: object = config
    for part in path:
        value = cast("Mapping[str, object]", value)[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _leaves(
    value: object, at: Shape, path: tuple[str, ...], blank: object = _NOTHING
) -> Iterator[tuple[tuple[str, ...], object, bool]]:
    """Every value with its path, and whether it is one that an entry of the user's own leaves at its default."""
    match at:
        case Table():
            for name, below in at.keys.items():
                yield from _leaves(getattr(value, name), below, (*path, name), getattr(blank, name, _NOTHING))
        case Names():
            usual = at.of.section() if isinstance(at.of, Table) else _NOTHING
            for name, item in cast("Mapping[str, object]", value).items():
                yield from _leaves(item, at.of, (*path, name), usual)
        case _:
            yield path, value, value == blank
