"""Every exception that Loom raises on purpose.

    LoomError
    ├── ContentError                a value that breaks an invariant; also a ValueError
    ├── ConfigError                 names the file, the key and what was expected
    ├── MediaError                  Unreadable · Unsupported · TooLarge · Encrypted
    │                               raised at the door, before anything is stored
    ├── StoreError                  NotFound · Newer · Corrupt · Conflict · Full · ReadOnly · Unreachable
    ├── ExtraMissing                an optional package or program is not installed
    ├── ProviderError               provider, model, status, retry_after, request id
    │   ├── NotAuthorised · RateLimited · Overloaded · Unavailable · Refused
    │   ├── TooManyBytes · ContextOverflow · MediaRefused (with the media) · CapabilityMissing
    │   └── WireError               the provider said something that we do not understand
    └── ToolError                   raised by a tool; becomes ToolResult(is_error=True); never leaves a turn

Each carries a stable `code` for programs, one sentence for people, and a `hint` that says what to do next.
Anything else that escapes is a bug in Loom.
"""

from __future__ import annotations

from typing import ClassVar


class LoomError(Exception):
    """The root. `str(error)` is the sentence and, where there is one, the next step."""

    code: ClassVar[str] = "loom"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?", "…")) else "."
        return f"{self.message}{stop} {self.hint}"


class ContentError(LoomError, ValueError):
    code = "content.invalid"


class ConfigError(LoomError):
    code = "config.invalid"

    def __init__(self, message: str, *, file: str = "", key: str = "", hint: str = "") -> None:
        where = ": ".join(part for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.file = file
        self.key = key


class MediaError(LoomError):
    """Bytes that cannot become a block. `name` is what the person called the file."""

    code = "media"

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


class Unreadable(MediaError):
    """Damaged, truncated, or not what it claims to be."""

    code = "media.unreadable"


class Unsupported(MediaError):
    """Whole, but of a kind that Loom does not take."""

    code = "media.unsupported"


class TooLarge(MediaError):
    """Over a limit of bytes, pixels, pages, frames or expansion."""

    code = "media.too_large"


class Encrypted(MediaError):
    """Needs a password."""

    code = "media.encrypted"


class StoreError(LoomError):
    code = "store"


class NotFound(StoreError):
    code = "store.not_found"


class Newer(StoreError):
    """Written by a newer version of Loom; never touched."""

    code = "store.newer"


class Corrupt(StoreError):
    code = "store.corrupt"


class Conflict(StoreError):
    """Somebody else moved it first (compare-and-set lost)."""

    code = "store.conflict"


class Full(StoreError):
    """No space left where the store lives."""

    code = "store.full"


class ReadOnly(StoreError):
    """The store may be read but not written."""

    code = "store.read_only"


class Unreachable(StoreError):
    """The database or the bucket does not answer."""

    code = "store.unreachable"


class ExtraMissing(LoomError):
    """An optional part is not installed; `hint` is the command that installs it."""

    code = "extra.missing"


class ProviderError(LoomError):
    """What a provider answered, in our words. `digests` are the media that it points at, where it names any."""

    code = "provider"

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str = "",
        digests: tuple[str, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        self.model = model
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
        self.digests = digests


class NotAuthorised(ProviderError):
    code = "provider.not_authorised"


class RateLimited(ProviderError):
    code = "provider.rate_limited"


class Overloaded(ProviderError):
    code = "provider.overloaded"


class Unavailable(ProviderError):
    """No connection, a timeout, a 5xx: trying again later may help."""

    code = "provider.unavailable"


class Refused(ProviderError):
    """The request was understood and turned down."""

    code = "provider.refused"


class TooManyBytes(ProviderError):
    code = "provider.too_many_bytes"


class ContextOverflow(ProviderError):
    code = "provider.context_overflow"


class MediaRefused(ProviderError):
    code = "provider.media_refused"


class CapabilityMissing(ProviderError):
    """The model cannot take this kind of content at all."""

    code = "provider.capability_missing"


class WireError(ProviderError):
    code = "provider.wire"


class ToolError(LoomError):
    code = "tool"
