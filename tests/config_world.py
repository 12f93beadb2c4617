"""A user with a home and a project folder, for the tests of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loom.config import Config, load_config


def load(
    folder: Path,
    *,
    user: Mapping[str, str] | str = "",
    project: Mapping[str, str] | str = "",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    strict: bool = False,
) -> Config:
    """Write the files (a text is `loom.toml`) into `folder/home` and `folder/work`, and load from the latter."""
    for place, files in (("home", user), ("work", project)):
        (folder / place).mkdir(exist_ok=True)
        for name, text in ({"loom.toml": files} if isinstance(files, str) else files).items():
            file = folder / place / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
    return load_config(
        cwd=folder / "work", environ={"LOOM_HOME": str(folder / "home"), **(environ or {})}, flags=flags, strict=strict
    )


def shown(config: Config) -> dict[str, tuple[str, str]]:
    """What `loom config show --origin` prints: key → (value, origin)."""
    return {row.key: (row.value, str(row.origin)) for row in config.show()}
