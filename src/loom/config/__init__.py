"""Configuration: `loom.toml` / `loom.yaml` / environment / flags → one frozen Config. Nothing else reads them.

Reading order: `schema` (the keys), `loader` (the layers), `layer_values` (checking), `effective` (the result).
"""

from loom.config.effective import Config, ConfigRow
from loom.config.layer_values import ValueOrigin
from loom.config.loader import load_config, user_folder
from loom.config.reference import config_schema
from loom.config.schema import (
    AgentEntry,
    ApprovalAction,
    ApprovalRule,
    ApprovalSettings,
    CapabilityOverrides,
    McpServer,
    ModelEntry,
    Settings,
)
from loom.config.secret import Secret, Url, redact

__all__ = [
    "AgentEntry",
    "ApprovalAction",
    "ApprovalRule",
    "ApprovalSettings",
    "CapabilityOverrides",
    "Config",
    "ConfigRow",
    "McpServer",
    "ModelEntry",
    "Secret",
    "Settings",
    "Url",
    "ValueOrigin",
    "config_schema",
    "load_config",
    "redact",
    "user_folder",
]
