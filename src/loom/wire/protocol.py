"""The interface of the wire modules in this package. pyright checks each module against it in `table`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from loom.errors import ProviderError
from loom.events import DecoderEvent
from loom.models import Model
from loom.prompt import Prompt


class WireDecoder(Protocol):
    """Decodes the bytes of one answer, in any chunking, to model events."""

    def feed(self, data: bytes, /) -> Iterator[DecoderEvent]:
        """Yield the events that the bytes complete. Raise the `ProviderError` that the provider sent."""
        ...

    def finish(self) -> Iterator[DecoderEvent]:
        """Yield the events pending when the stream ended without an error."""
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
        """The headers of every request, without the key."""
        ...

    @property
    def encode(self) -> Encode:
        """Return the JSON of a request, with `Embedded` media. The model accepts every block of the prompt."""
        ...

    @property
    def Decoder(self) -> NewDecoder:  # noqa: N802 - a class of each module
        """Return the decoder for one answer of a model."""
        ...

    @property
    def fault(self) -> Fault:
        """Return the error for a response with another status than 200, or for an error inside a stream. `sent` is the
        request, to find the media at fault."""
        ...

    def path(self, model: Model, /) -> str:
        """Return the path of a request after the model's base URL."""
        ...
