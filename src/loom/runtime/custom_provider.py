"""Custom providers: a name, capabilities, and a method that answers prompts.

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
from typing import Final, Protocol, cast, get_args

from loom.errors import ConfigError, LoomError, ProviderError
from loom.events import CallFinished, DecoderEvent, Stopped, TextDelta
from loom.models import Capabilities, Limits, Model, ProviderName, TokenRule
from loom.prompt import Prompt
from loom.providers import catalog

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_EVENTS: Final = get_args(DecoderEvent)
_LIMITS: Final = Limits(context_tokens=128_000, max_output_tokens=32_000)


class CustomProvider(Protocol):
    """A provider implemented by the user's program. It receives prompts that fit its capabilities, and yields text, or
    model events (`loom.events`) for anything else. An answer that ends without an exception is complete."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def stream(self, prompt: Prompt) -> AsyncIterator[str | DecoderEvent]: ...


def register_provider(provider: CustomProvider) -> None:
    """Register a provider for all runtimes of this process: `NAME` and `NAME/MODEL` refer to it from now on. Raise
    `ConfigError` if the name is invalid or taken."""
    name = provider_name(provider)
    if name in catalog.platforms() or name in catalog.ALIASES:
        raise ConfigError(f"{name} is the name of a built-in service.", hint="Choose another name.")
    REGISTERED[name] = CustomProviderAdapter(provider)


def provider_name(provider: CustomProvider) -> str:
    """Return the name of a provider. Raise `ConfigError` if it is invalid, or if something else was given as one."""
    name: object = getattr(provider, "name", None)
    if not isinstance(name, str) or not all(hasattr(provider, part) for part in ("capabilities", "stream")):
        raise ConfigError(
            f"Not a provider: {type(provider).__name__}.",
            hint="A provider has `name`, `capabilities` and a method `stream(prompt)`.",
        )
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"Invalid provider name: {name!r}.",
            hint="Use a lower-case letter, then lower-case letters, digits, _ and -, 40 at most.",
        )
    return name


def custom_model(reference: str, own: Mapping[str, CustomProviderAdapter]) -> Model | None:
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


class CustomProviderAdapter:
    """Adapts a custom provider to the `Provider` port."""

    def __init__(self, own: CustomProvider) -> None:
        self.own = own

    async def stream(self, prompt: Prompt) -> AsyncGenerator[DecoderEvent]:
        is_stopped = has_called = False
        try:
            async for said in self.own.stream(prompt):
                event = TextDelta(text=said) if isinstance(said, str) else said
                if not isinstance(event, _EVENTS):  # from an untyped program
                    raise TypeError(f"stream() yielded {type(event).__name__}; yield text or events of loom.events")
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


REGISTERED: Final[dict[str, CustomProviderAdapter]] = {}
"""The registered providers by name, for every runtime of this process."""
