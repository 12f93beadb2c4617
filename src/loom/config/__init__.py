"""Configuration: `loom.toml` / `loom.yaml` / environment / flags → one frozen Config; the only reader of any of them.

Reading order: `schema` (the keys) → `load` (the layers) → `entries` (checking) → `merged` (what others use).
"""

from loom.config.entries import Origin
from loom.config.load import load_config, user_folder
from loom.config.merged import Config, Shown
from loom.config.reference import config_schema
from loom.config.schema import Action, AgentEntry, Approval, CapabilityOverrides, McpServer, ModelEntry, Rule, Settings
from loom.config.secret import Secret, Url, redact

__all__ = [
    "Action",
    "AgentEntry",
    "Approval",
    "CapabilityOverrides",
    "Config",
    "McpServer",
    "ModelEntry",
    "Origin",
    "Rule",
    "Secret",
    "Settings",
    "Shown",
    "Url",
    "config_schema",
    "load_config",
    "redact",
    "user_folder",
]
