"""What every wire is: the shape of the modules in this package. pyright checks each module against it in `table`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from loom.errors import ProviderError
from loom.events import DecoderEvent
from loom.models import Model
from loom.prompt import Prompt


class WireDecoder(Protocol):
    """Bytes of one answer in, model events out, for any chunking."""

    def feed(self, data: bytes, /) -> Iterator[DecoderEvent]:
        """Yield what the bytes complete. Raise the `ProviderError` that the provider sent."""
        ...

    def finish(self) -> Iterator[DecoderEvent]:
        """Yield what was pending when the stream ended without an error."""
        ...


class NewDecoder(Protocol):
    def __call__(self, model: Model, /) -> WireDecoder: ...


class Encode(Protocol):
    def __call__(self, prompt: Prompt, /) -> dict[str, Any]: ...


class Fault(Protocol):
    def __call__(
        self, status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None, /
    ) -> ProviderError: ...


class Wire(Protocol):
    """One protocol. Attributes of a module satisfy it: `path`, `HEADERS`, `encode`, `Decoder`, `fault`."""

    @property
    def HEADERS(self) -> Mapping[str, str]:  # noqa: N802 - a constant of each module
        """What every request carries beside the key."""
        ...

    @property
    def encode(self) -> Encode:
        """Prompt → the JSON of a request, with `Embedded` media. Every block is already one that the model accepts."""
        ...

    @property
    def Decoder(self) -> NewDecoder:  # noqa: N802 - a class of each module
        """Model → the decoder of one answer."""
        ...

    @property
    def fault(self) -> Fault:
        """What an answer other than 200, or an error inside a stream, means. `sent` names the medium that it blames."""
        ...

    def path(self, model: Model, /) -> str:
        """Return where a request goes, behind the model's base URL."""
        ...
