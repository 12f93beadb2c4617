"""Every exception that Loom raises on purpose.

    LoomError
    ├── ContentError                a value that breaks an invariant; also a ValueError
    │   ├── ApprovalGone            an approval that is no longer pending
    │   └── KeyReused               an Idempotency-Key that was used for another message
    ├── ConfigError                 names the file, the key and what was expected
    ├── BudgetSpent                 a session, or a day, has reached its budget
    ├── MediaError                  Unreadable · Unsupported · TooLarge · Encrypted
    │                               raised at intake, before anything is stored
    ├── StoreError                  NotFound (NotSent) · Newer · Corrupt · Conflict (Stale) · Full · ReadOnly
    │   └── Unreachable             BlobsUnavailable (the media, for now: neither missing nor damaged)
    ├── ExtraMissing                an optional package or program is not installed
    ├── ProviderError               provider, model, status, retry_after, request id
    │   ├── NotAuthorised · RateLimited · Overloaded · Unavailable · Refused
    │   ├── TooManyBytes · ContextOverflow · MediaRefused (with the media) · CapabilityMissing
    │   ├── OutputInvalid           an answer that does not match the requested schema
    │   └── WireError               an answer of the provider that cannot be parsed
    └── ToolError                   raised by a tool; becomes ToolResult(is_error=True); never leaves a turn

Each has a stable `code` for programs, a one-sentence `message`, and a `hint` with the next step.
Any other exception is a bug in Loom.
"""

from __future__ import annotations

from typing import ClassVar


class LoomError(Exception):
    """Root of the tree. `str(error)` is the message, followed by the hint if there is one."""

    code: ClassVar[str] = "loom"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        if self.message.endswith("\n"):  # a passage on lines of its own
            return f"{self.message}{self.hint}"
        stop = "" if self.message.endswith((".", "!", "?", "…")) else "."
        return f"{self.message}{stop} {self.hint}"


class ContentError(LoomError, ValueError):
    """A value that breaks an invariant."""

    code = "content.invalid"


class ApprovalGone(ContentError):
    """The approval is no longer pending: it was answered already, or its turn is over."""

    code = "approval.gone"


class KeyReused(ContentError):
    """An Idempotency-Key that was used for another message: the new one was not accepted."""

    code = "request.key_reused"


class ConfigError(LoomError):
    """An invalid setting. `file` and `key` say where it is."""

    code = "config.invalid"

    def __init__(self, message: str, *, file: str = "", key: str = "", hint: str = "") -> None:
        where = ": ".join(part for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.file = file
        self.key = key


class BudgetSpent(LoomError):
    """A session, or all sessions of today, have reached their budget. No further turn starts."""

    code = "budget.spent"


class MediaError(LoomError):
    """Bytes that cannot become a block. `name` is the file name that the user gave."""

    code = "media"

    def __init__(self, message: str, *, name: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


class Unreadable(MediaError):
    """Damaged, truncated, or of another type than declared."""

    code = "media.unreadable"


class Unsupported(MediaError):
    """Intact, but of a type that Loom does not accept."""

    code = "media.unsupported"


class TooLarge(MediaError):
    """Over a limit of bytes, pixels, pages, frames or decompressed size."""

    code = "media.too_large"


class Encrypted(MediaError):
    """Needs a password."""

    code = "media.encrypted"


class StoreError(LoomError):
    """The database or the blob store failed."""

    code = "store"


class NotFound(StoreError):
    """No record with this id."""

    code = "store.not_found"


class NotSent(NotFound):
    """The model does not receive these bytes: it gets their text, or nothing."""

    code = "media.not_sent"


class Newer(StoreError):
    """Written by a newer version of Loom; not opened."""

    code = "store.newer"


class Corrupt(StoreError):
    """Stored data fail their checksum or cannot be decoded."""

    code = "store.corrupt"


class Conflict(StoreError):
    """Another process changed it first (a lost compare-and-set or lease)."""

    code = "store.conflict"


class Stale(Conflict):
    """The session has a different revision than the one in the request."""

    code = "store.stale"


class Full(StoreError):
    """No space left on the store's disk."""

    code = "store.full"


class ReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store.read_only"


class Unreachable(StoreError):
    """The database or the bucket does not respond."""

    code = "store.unreachable"


class BlobsUnavailable(Unreachable):
    """The bucket or the folder of media is temporarily unavailable. What is stored there is neither missing nor
    damaged: a request can be sent without it, and a later one may include it again."""

    code = "store.blobs_unavailable"


class ExtraMissing(LoomError):
    """An optional dependency is not installed; `hint` is the command that installs it."""

    code = "extra.missing"


class ProviderError(LoomError):
    """A failed request to a provider. `digests` are the media that its answer refers to, if any."""

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
    """The API key is missing, invalid or lacks a permission."""

    code = "provider.not_authorised"


class RateLimited(ProviderError):
    """Too many requests; `retry_after` is in seconds, if the provider states it."""

    code = "provider.rate_limited"


class Overloaded(ProviderError):
    """The provider has no capacity at the moment."""

    code = "provider.overloaded"


class Unavailable(ProviderError):
    """No connection, a timeout or a 5xx: a later retry may succeed."""

    code = "provider.unavailable"


class Refused(ProviderError):
    """The provider understood the request and rejected it."""

    code = "provider.refused"


class TooManyBytes(ProviderError):
    """The request body is larger than the provider accepts."""

    code = "provider.too_many_bytes"


class ContextOverflow(ProviderError):
    """The request has more tokens than the context window."""

    code = "provider.context_overflow"


class MediaRefused(ProviderError):
    """The provider rejected a medium; `digests` says which, if known."""

    code = "provider.media_refused"


class CapabilityMissing(ProviderError):
    """The model does not support this kind of content."""

    code = "provider.capability_missing"


class OutputInvalid(ProviderError):
    """The answer does not match the requested schema, even after a second attempt."""

    code = "output.invalid"


class WireError(ProviderError):
    """The provider's answer does not follow its protocol."""

    code = "provider.wire"


class ToolError(LoomError):
    """Raised by a tool. The model reads it as the result of its call."""

    code = "tool"
