"""Config: the effective settings, with the origin of each. The rest of Loom reads only this."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from loom.api_types import FolderTrustView
from loom.compile.policy import Policy
from loom.config import value_references
from loom.config.approval import ProjectApproval
from loom.config.files import home_folder
from loom.config.layer_values import LayerSource, LayerValue, ValueOrigin
from loom.config.schema import Settings
from loom.config.schema_tree import NamedTables, Shape, TableShape, key_text, shape
from loom.config.secret import Secret, setting_text
from loom.config.trust import FolderTrust, TrustRecords
from loom.errors import ConfigError
from loom.formats.facts import IntakeLimits

_NOTHING: Final = object()


class ConfigRow(NamedTuple):
    """A row of `loom config show`."""

    key: str
    value: str
    origin: ValueOrigin | None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a Config: the effective entry of each path, and the project's approval rules."""

    entries: Mapping[tuple[str, ...], LayerValue] = {}
    project_entries: tuple[LayerValue, ...] = ()
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)

    def __repr__(self) -> str:
        return f"Provenance({len(self.entries)} entries)"


class Config(Settings, frozen=True, kw_only=True):
    """The effective settings. `Config()` is the defaults; `load_config` reads the layers.

    Two configs are equal if their settings are equal, regardless of their files.
    """

    warnings: tuple[str, ...] = ()
    project_approval: ProjectApproval = ProjectApproval()
    provenance: Provenance = msgspec.field(default_factory=Provenance)

    def __repr__(self) -> str:
        fields = (f"{name}={setting_text(getattr(self, name))}" for name in Settings.__struct_fields__)
        return f"Config({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        names = (*Settings.__struct_fields__, "project_approval")
        return isinstance(other, Config) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # it holds tables

    def origin(self, *path: str) -> ValueOrigin:
        """Return where the value at `path` came from: `config.origin("server", "port")`."""
        entry = self.provenance.entries.get(path)
        return entry.origin() if entry else ValueOrigin(layer="default")

    def show(self, *, origins: bool = True) -> list[ConfigRow]:
        """Return every setting as a printable row; user-defined entries (models, agents, …) with the keys they set.

        `approval` keys can appear twice: the project's apply in addition to the user's.
        """
        entries = self.provenance.entries
        rows: list[ConfigRow] = []
        for path, value, is_blank in _leaves(self, shape()):
            if path in entries or not is_blank:
                rows.append(ConfigRow(key_text(path), setting_text(value), self.origin(*path) if origins else None))
        for entry in self.provenance.project_entries:
            value = getattr(self.project_approval, entry.path[-1])
            rows.append(ConfigRow(key_text(entry.path), setting_text(value), entry.origin() if origins else None))
        return rows

    def secret(self, *path: str) -> str:
        """Return the secret or URL at `path` with references resolved: `config.secret("models", "fast", "api_key")`.

        Empty if unset. `{env:…}` and `{file:…}` are resolved only here, so a missing one fails only where it is used.
        """
        value = _value_at(self, path)
        if not isinstance(value, Secret):
            raise TypeError(f"{key_text(path)} is not a secret")
        return value_references.resolve_reference(value.written, self._entry(path), self.provenance.environ)

    def secrets(self, *path: str) -> dict[str, str]:
        """Return a table of secrets: `config.secrets("models", "fast", "headers")`."""
        return {name: self.secret(*path, name) for name in cast("Mapping[str, Secret]", _value_at(self, path))}

    def secret_values(self) -> frozenset[str]:
        """Return every configured secret, with references resolved, to mask them in the output of tools."""
        found: set[str] = set()
        for path, value, _ in _leaves(self, shape()):
            tables = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"": value}
            for name, leaf in tables.items():
                if type(leaf) is not Secret or not leaf:
                    continue
                try:
                    found.add(self.secret(*path, *([name] if name else [])))
                except ConfigError:
                    continue  # a reference that cannot be resolved has no value to mask
        return frozenset(secret for secret in found if secret)

    def system_prompt(self, agent_id: str) -> str:
        """Return the system prompt of an agent, read from its file if it names one."""
        return value_references.prompt_text(self.agents[agent_id].system, self._entry(("agents", agent_id, "system")))

    def prompt_parts(self) -> tuple[str, str]:
        """Return the text that replaces the default prompt and the text to append to it, read from files if named."""
        written = (("system", self.prompt.system), ("append", self.prompt.append))
        system, append = (value_references.prompt_text(text, self._entry(("prompt", key))) for key, text in written)
        return system, append

    def is_trusted(self, folder: Path) -> bool:
        """Return whether `folder` is one of `trusted_folders` or below one, so that its files may start programs and
        instruct models."""
        found = Path(os.path.realpath(folder))
        return any(
            found.is_relative_to(os.path.realpath(Path(trusted).expanduser())) for trusted in self.trusted_folders
        )

    def trust_decision(self, workspace: Path) -> FolderTrust:
        """Return the user's decision about a workspace with its current files. This reads files."""
        return self.trust_records(workspace).find(workspace)

    def folder_trust(self, workspace: Path) -> FolderTrustView:
        """Return the files that a workspace brings, and the user's decision about it. This reads files."""
        return self.trust_records(workspace).describe(workspace, is_listed=self.is_trusted(workspace))

    def trust_records(self, workspace: Path) -> TrustRecords:
        """Return the user's decisions about folders."""
        from loom.config.loader import user_folder

        return TrustRecords(user_folder(self.provenance.environ, workspace))

    def may_instruct(self, workspace: Path) -> bool:
        """Return whether skills, commands and programs of a workspace are used. This reads files."""
        return self.is_trusted(workspace) or self.trust_decision(workspace) == "trusted"

    def media_limits(self) -> IntakeLimits:
        """Return the intake limits."""
        return IntakeLimits(
            max_text_bytes=self.documents.max_text_bytes,
            max_image_bytes=self.images.max_size_bytes,
            max_pdf_bytes=self.documents.max_pdf_bytes,
            max_office_bytes=self.documents.max_office_bytes,
            max_audio_bytes=self.audio.max_size_bytes,
            max_video_bytes=self.video.max_size_bytes,
            max_pixels=self.images.max_pixels,
            max_frames=self.images.max_frames,
            max_expanded_bytes=self.documents.max_expanded_bytes,
            deadline_seconds=self.worker.deadline_seconds,
            conversion_seconds=self.worker.conversion_seconds,
            ocr_seconds=self.worker.ocr_seconds,
            worker_memory_bytes=self.worker.memory_bytes,
        )

    def context_policy(self) -> Policy:
        """Return the policy for old and large content."""
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
            video_frames=self.video.frames,
            frame_side_px=self.video.frame_side,
            max_tokens=context.max_tokens,
            max_bytes=context.max_bytes,
            max_images=context.max_images,
            max_pages=context.max_pages,
        )

    def data_folder(self) -> Path:
        """Return the default folder of sessions and media; `store.url` and `media.url` override it."""
        if self.home:
            return self._home()
        import platformdirs

        require_home()
        return platformdirs.user_data_path("loom")

    def state_folder(self) -> Path:
        """Return the folder of files that belong to this machine, such as the daemon's token."""
        if self.home:
            return self._home() / "state"
        import platformdirs

        require_home()
        return platformdirs.user_state_path("loom")

    def token_file(self) -> Path:
        """Return the file with the access token of the local daemon."""
        return self.state_folder() / "token"

    def daemon_file(self) -> Path:
        """Return the file with the URL of the local daemon."""
        return self.state_folder() / "daemon.json"

    def _home(self) -> Path:
        return absolute_path(self.home, self._entry(("home",)).source.folder)

    def _entry(self, path: tuple[str, ...]) -> LayerValue:
        """Return the entry of the value; a value that was set in code counts as a flag."""
        given = LayerValue(path=path, value=None, source=LayerSource(layer="flags", folder=Path()), written_at=path)
        return self.provenance.entries.get(path, given)


def absolute_path(written: str, folder: Path) -> Path:
    """Return the absolute path of a folder as a user writes it (`~/x`, `x`)."""
    try:
        return (folder / Path(written).expanduser()).absolute()
    except RuntimeError:
        raise ConfigError(f"The home folder in {written} is unknown.", hint="Write the full path.") from None


def require_home() -> None:
    if home_folder() is None:
        raise ConfigError("No home folder found for the data.", hint="Set LOOM_HOME to a folder.")


def _value_at(config: Config, path: tuple[str, ...]) -> object:
    value: object = config
    for part in path:
        value = cast("Mapping[str, object]", value)[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _leaves(
    value: object, at: Shape, path: tuple[str, ...] = (), blank: object = _NOTHING
) -> Iterator[tuple[tuple[str, ...], object, bool]]:
    """Yield the path and value of every setting, and whether a user-defined entry leaves it at its default."""
    match at:
        case TableShape():
            for name, below in at.keys.items():
                yield from _leaves(getattr(value, name), below, (*path, name), getattr(blank, name, _NOTHING))
        case NamedTables():
            usual = at.of.section() if isinstance(at.of, TableShape) else _NOTHING
            for name, item in cast("Mapping[str, object]", value).items():
                yield from _leaves(item, at.of, (*path, name), usual)
        case _:
            yield path, value, value == blank
