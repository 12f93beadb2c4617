"""Generate `docs/options.md`: which request options each platform supports, from the catalog and the wires."""

from __future__ import annotations

from typing import Any, Final

from loom.models import Model
from loom.providers import catalog
from loom.sampling import OPTION_NAMES, OutputSchema, Sampling, unsupported_options

_MODELS: Final = (
    "anthropic/claude-opus-5",
    "bedrock/anthropic.claude-opus-5-v1:0",
    "bedrock/us.amazon.nova-2-lite-v1:0",
    "openai/gpt-6-astra",
    "openai-chat/gpt-5.4",
    "openai-chat/gpt-4o",
    "gemini/gemini-4-argon",
    "ollama/qwen3-vl:8b",
    "deepseek/deepseek-flash",
    "mistral/mistral-medium-latest",
    "openrouter/anthropic/claude-opus-5",
    "compatible/any-model",
)
_SAMPLES: Final[dict[str, Any]] = {
    "max_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.5,
    "seed": 1,
    "stop": ("END",),
    "thinking": "high",
    "tool_choice": "any",
    "tool_name": "look",
    "parallel_calls": False,
    "output_schema": OutputSchema(schema={"type": "object"}),
    "service_tier": "auto",
    "user": "u",
    "server_tools": ("web_search",),
    "cache_key": "k",
    "cache": "1h",
    "extra_body": {"a": 1},
    "extra_headers": {"X-A": "1"},
}

_HEAD: Final = """\
# Request options

Set an option for a model (`[models.NAME]`), a session or a message: `loom ask --think LEVEL -o KEY=VALUE`,
`options={…}` in the library, `options` in the API. This table shows what each platform does with it; it is generated
from the model catalog.

- **sent**: the platform supports it.
- **emulated**: Loom asks for it in the system prompt and checks the answer.
- **named**: the platform does not support it. Loom does not send it, notifies you once, and lists it in receipts
  (`unsent_options`).

"""


def page() -> str:
    missing = [name for name in OPTION_NAMES if name not in _SAMPLES]
    if missing:
        raise LookupError(f"docs/option_page.py has no sample of {', '.join(missing)}")
    models = [catalog.model(reference) for reference in _MODELS]
    lines = [
        f"| option | {' | '.join(f'`{reference}`' for reference in _MODELS)} |",
        "|---" * (len(_MODELS) + 1) + "|",
        *(f"| `{name}` | {' | '.join(_state(model, name) for model in models)} |" for name in OPTION_NAMES),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _state(model: Model, name: str) -> str:
    values = {name: _SAMPLES[name]} | ({"tool_choice": "any"} if name == "tool_name" else {})
    if name in unsupported_options(model, Sampling(**values)):
        return "named"
    has_schema = "output_schema" in model.options and model.dialect.output_schema == "json_schema"
    return "emulated" if name == "output_schema" and not has_schema else "sent"
