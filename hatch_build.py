"""Build hook of the package: builds the web client with web/make.py, so that the wheel contains it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WebClientHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        maker = Path(self.root) / "web" / "make.py"
        if maker.exists():
            runpy.run_path(str(maker))["make_for_package"]()
