"""Providers of your own: a name, capabilities, and a function that answers.

class Echo:
    name = "echo"
    capabilities = loom.Capabilities()

    async def stream(self, prompt):
        yield prompt.messages[-1].blocks[-1].text.upper()

loom.register_provider(Echo())          # from now on `echo` and `echo/anything` are models
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, Protocol, cast

from loom.errors import ConfigError, LoomError, ProviderError
from loom.events import CallFinished, DecoderEvent, Stopped, TextDelta
from loom.models import Capabilities, Limits, Model, ProviderName, TokenRule
from loom.prompt import Prompt
from loom.providers import catalog

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_LIMITS: Final = Limits(context_tokens=128_000, max_output_tokens=32_000)


class CustomProvider(Protocol):
    """It is asked with prompts that fit its capabilities. It gives pieces of text, or model events (`loom.events`)
    where it does more than speak; an answer that ends without an exception is whole."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def stream(self, prompt: Prompt) -> AsyncIterator[str | DecoderEvent]: ...


def register_provider(provider: CustomProvider) -> None:
    """From now on `NAME` and `NAME/MODEL` mean this provider, in every runtime of this process."""
    name = provider.name
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"a provider's name has small letters, digits, _ and -, not {name!r}")
    if name in catalog.platforms() or name in catalog.ALIASES:
        raise ConfigError(f"{name} is a service that Loom knows.", hint="Choose another name.")
    REGISTERED[name] = Answering(provider)


def custom_model(reference: str, own: Mapping[str, Answering]) -> Model | None:
    name, _, model = reference.partition("/")
    found = own.get(name)
    if found is None:
        return None
    return Model(
        provider=cast("ProviderName", name),
        name=model or name,
        wire="spark",
        capabilities=found.own.capabilities,
        limits=_LIMITS,
        tokens=TokenRule(),
    )


class Answering:
    """A custom provider behind the agent's interface."""

    def __init__(self, own: CustomProvider) -> None:
        self.own = own

    async def stream(self, prompt: Prompt) -> AsyncGenerator[DecoderEvent]:
        is_stopped = has_called = False
        try:
            async for said in self.own.stream(prompt):
                event = TextDelta(text=said) if isinstance(said, str) else said
                is_stopped = is_stopped or isinstance(event, Stopped)
                has_called = has_called or isinstance(event, CallFinished)
                yield event
        except LoomError:
            raise
        except Exception as error:
            words = _ADDRESS.sub("", f"{type(error).__name__}: {error}")
            raise ProviderError(
                f"{self.own.name} failed: {words}", provider=self.own.name, model=prompt.model.name
            ) from error
        if not is_stopped:
            yield Stopped(reason="tool_calls" if has_called else "end")


REGISTERED: Final[dict[str, Answering]] = {}
"""By name, for every runtime of this process."""
