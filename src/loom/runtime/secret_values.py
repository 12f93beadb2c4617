"""SecretValues: values that must not appear in any result, event, log or export."""

from __future__ import annotations

import os
from collections.abc import Callable

from loom.config import Config


class SecretValues:
    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._read: tuple[Config, frozenset[str]] | None = None

    @property
    def values(self) -> frozenset[str]:
        """The secrets of the current configuration and of the environment."""
        config = self._config()
        if self._read is None or self._read[0] is not config:
            from loom.tools.secret_mask import environment_secrets

            self._read = config, config.secret_values() | environment_secrets(os.environ)
        return self._read[1]

    def mask(self, text: str) -> str:
        """Return `text` with every secret masked."""
        from loom.tools.secret_mask import mask_secrets

        return mask_secrets(text, self.values)
