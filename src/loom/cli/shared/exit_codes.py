"""Exit codes that scripts can rely on. Documented in docs/cli.md."""

from __future__ import annotations

from typing import Final

from loom.errors import ConfigError, ContentError, ExtraMissing, LoomError, MediaError, NotAuthorised, ProviderError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_KEY: Final = 3
PROVIDER: Final = 4
MEDIA: Final = 5
LIMIT: Final = 6
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "done",
    FAILED: "failed: the message on stderr says why and what to do",
    USAGE: "invalid command line or configuration",
    NO_KEY: "no API key for the provider, or it was refused",
    PROVIDER: "the provider refused, rate-limited or did not answer",
    MEDIA: "a file was rejected: damaged, encrypted, too large or unsupported",
    LIMIT: 'a turn reached its limit of steps or time; continue with `loom -c "go on"`',
    INTERRUPTED: "interrupted with Ctrl+C; the conversation is saved",
}

_BY_CODE: Final = (
    ("provider.not_authorised", NO_KEY),
    ("provider", PROVIDER),
    ("media", MEDIA),
    ("extra.missing", MEDIA),
    ("config.", USAGE),
    ("turn.limit", LIMIT),
)


class TurnError(LoomError):
    """A failed turn. `turn_code` is the error code from its event."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.turn_code = code


def exit_code(error: LoomError) -> int:
    match error:
        case TurnError():
            return exit_code_of(error.turn_code)
        case NotAuthorised():
            return NO_KEY
        case ProviderError():
            return PROVIDER
        case MediaError() | ExtraMissing():
            return MEDIA
        case ConfigError() | ContentError():
            return USAGE
        case _:
            return FAILED


def exit_code_of(code: str) -> int:
    """Return the exit code for the error code of an event."""
    return next((number for prefix, number in _BY_CODE if code.startswith(prefix)), FAILED)


def error_code(error: LoomError) -> str:
    return error.turn_code if isinstance(error, TurnError) else error.code
