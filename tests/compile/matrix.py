"""The form of each kind of block, in each place, for each kind of model. Data: the tests compare the compiler with it,
and docs/fallback-matrix.md is printed from it.

full      unchanged, in its place
nested    unchanged, inside the tool result
hoisted   unchanged, in a user message after the group of results (or after the assistant message)
pages     images of the pages of a document or frames of a video, in its place; `pages, hoisted`: hoisted
text      a description, extracted or recognized text, else a label
low       512 px (a document: its text; a video: four frames)
omitted   left out, with a reason in the receipt
"""

from __future__ import annotations

from typing import Any

MODELS = {
    "Claude": "anthropic/claude-opus-5",
    "Claude on Bedrock": "bedrock/anthropic.claude-opus-5",
    "GPT (Responses)": "openai/gpt-5.5",
    "GPT before 5.4 (Responses)": "openai/gpt-4.1",
    "GPT (Chat)": "openai-chat/gpt-5.5",
    "GPT audio (Chat)": "openai-chat/gpt-audio",
    "GPT without tools (Chat)": "openai-chat/gpt-6.1-sol",
    "Gemini 3, 4": "gemini/gemini-4-argon",
    "Gemini 2.5": "gemini/gemini-2.5-pro",
    "Ollama with images": "ollama/llava",
    "Ollama, text-only": "ollama/llama3.2",
    "DeepSeek with images": "deepseek/deepseek-flash",
    "DeepSeek, text-only": "deepseek/deepseek-v4-pro",
    "Mistral with images": "mistral/mistral-large-latest",
    "Mistral, text-only": "mistral/codestral-latest",
    "Voxtral": "mistral/voxtral-small",
    "compatible with images": "compatible/qwen3-vl",
    "compatible, text-only": "compatible/smollm2-135m",
}

PLACES = ("user", "result", "assistant")
BLOCKS = ("image", "animation", "PDF", "long PDF", "office file", "audio", "video", "unknown")

_CLAUDE = {
    "image": ("full", "nested", "hoisted"),
    "animation": ("full", "nested", "hoisted"),
    "PDF": ("full", "nested", "hoisted"),
    "long PDF": ("full", "nested", "hoisted"),
    "office file": ("text", "text", "text"),
    "audio": ("text", "text", "text"),
    "video": ("pages", "pages", "pages, hoisted"),
    "unknown": ("text", "text", "text"),
}
_HOISTING = (
    _CLAUDE
    | dict.fromkeys(("image", "animation", "PDF", "long PDF"), ("full", "hoisted", "hoisted"))
    | {"video": ("pages", "pages, hoisted", "pages, hoisted")}
)
_TEXT_ONLY = dict.fromkeys(BLOCKS, ("text", "text", "text"))
_IMAGES_ONLY = _TEXT_ONLY | {
    "image": ("full", "hoisted", "hoisted"),
    "animation": ("full", "hoisted", "hoisted"),
    "PDF": ("pages", "pages, hoisted", "pages, hoisted"),
    "long PDF": ("pages", "pages, hoisted", "pages, hoisted"),
    "video": ("pages", "pages, hoisted", "pages, hoisted"),
}
_RECORDINGS = dict.fromkeys(("audio", "video"), ("full", "hoisted", "hoisted"))
_AUDIO_ONLY = _TEXT_ONLY | {"audio": ("full", "hoisted", "hoisted")}

FALLBACKS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Claude": _CLAUDE,
    "Claude on Bedrock": _CLAUDE,
    "GPT (Responses)": _CLAUDE,
    "GPT before 5.4 (Responses)": _CLAUDE
    | {
        "image": ("full", "hoisted", "hoisted"),
        "animation": ("full", "hoisted", "hoisted"),
        "video": ("pages", "pages, hoisted", "pages, hoisted"),
    },
    "GPT (Chat)": _HOISTING,
    "GPT audio (Chat)": _AUDIO_ONLY,
    "GPT without tools (Chat)": _HOISTING,
    "Gemini 3, 4": _CLAUDE | _RECORDINGS,
    "Gemini 2.5": _HOISTING | _RECORDINGS,
    "Ollama with images": _IMAGES_ONLY,
    "Ollama, text-only": _TEXT_ONLY,
    "DeepSeek with images": _IMAGES_ONLY,
    "DeepSeek, text-only": _TEXT_ONLY,
    "Mistral with images": _IMAGES_ONLY
    | {
        "image": ("full", "nested", "hoisted"),
        "animation": ("full", "nested", "hoisted"),
        "PDF": ("pages", "pages", "pages, hoisted"),
        "long PDF": ("pages", "pages", "pages, hoisted"),
        "video": ("pages", "pages", "pages, hoisted"),
    },
    "Mistral, text-only": _TEXT_ONLY,
    "Voxtral": _AUDIO_ONLY,
    "compatible with images": _IMAGES_ONLY,
    "compatible, text-only": _TEXT_ONLY,
}
"""Model → block → (in a user's message, in a tool result, in an assistant's message)."""

THOUGHTS = ("own, before calls", "own, before text", "another model's", "of unknown origin")
THINKING: dict[str, tuple[str, str, str, str]] = {
    "Claude": ("full", "full", "omitted", "omitted"),
    "Claude on Bedrock": ("full", "full", "omitted", "omitted"),
    "GPT (Responses)": ("full", "full", "omitted", "omitted"),
    "GPT before 5.4 (Responses)": ("omitted", "omitted", "omitted", "omitted"),
    "GPT (Chat)": ("omitted", "omitted", "omitted", "omitted"),
    "GPT audio (Chat)": ("omitted", "omitted", "omitted", "omitted"),
    "GPT without tools (Chat)": ("omitted", "omitted", "omitted", "omitted"),
    "Gemini 3, 4": ("full", "full", "omitted", "omitted"),
    "Gemini 2.5": ("full", "full", "omitted", "omitted"),
    "Ollama with images": ("full", "full", "omitted", "omitted"),
    "Ollama, text-only": ("full", "full", "omitted", "omitted"),
    "DeepSeek with images": ("full", "omitted", "omitted", "omitted"),
    "DeepSeek, text-only": ("full", "omitted", "omitted", "omitted"),
    "Mistral with images": ("omitted", "omitted", "omitted", "omitted"),
    "Mistral, text-only": ("omitted", "omitted", "omitted", "omitted"),
    "Voxtral": ("omitted", "omitted", "omitted", "omitted"),
    "compatible with images": ("full", "full", "omitted", "omitted"),
    "compatible, text-only": ("full", "full", "omitted", "omitted"),
}

AGES: dict[str, dict[str, tuple[str, str, str]]] = {
    "image": {"with images": ("full", "low", "text"), "text-only": ("text", "text", "text")},
    "PDF": {"with images": ("full", "text", "text"), "text-only": ("text", "text", "text")},
    "video": {"with images": ("pages", "low", "text"), "text-only": ("text", "text", "text")},
    "audio": {"with images": ("text", "text", "text"), "text-only": ("text", "text", "text")},
}
"""Block → model → (this turn, `full_turns` later, `low_turns` after that). A PDF keeps its words, then its label."""


def page() -> str:
    """docs/fallback-matrix.md."""
    lines = [
        "# Fallback matrix",
        "",
        "The form in which each kind of block is sent, in each place, to each kind of model. Generated from",
        "`tests/compile/matrix.py`; a test checks every cell. Every form except `full`, `nested` and `hoisted` has",
        "its reason in the receipt. Of a long PDF, Loom sends the pages that are read at once, and says so in the",
        "receipt.",
        "",
        *_words(),
        "",
        *_tables(),
        "## Thinking",
        "",
        "Loom returns reasoning only to the model that produced it, and only if its platform accepts it.",
        "",
        *_table(("model", *THOUGHTS), [(name, *cells) for name, cells in THINKING.items()]),
        "",
        "## Age",
        "",
        "Older blocks get smaller: *new* is the current turn, *older* starts `full_turns` later, *old* after another",
        "`low_turns` turns.",
        "",
        *_table(
            ("block", "model", "new", "older", "old"),
            [(block, kind, *cells) for block, kinds in AGES.items() for kind, cells in kinds.items()],
        ),
        "",
    ]
    return "\n".join(lines)


def _words() -> list[str]:
    meanings = (__doc__ or "").split("\n\n", 1)[1].strip().splitlines()
    return _table(("form", "meaning"), [tuple(part.strip() for part in line.split("  ", 1)) for line in meanings])


def _tables() -> list[str]:
    titles = {"user": "In a user message", "result": "In a tool result", "assistant": "In an assistant message"}
    lines: list[str] = []
    for at, place in enumerate(PLACES):
        rows = [(name, *(cells[block][at] for block in BLOCKS)) for name, cells in FALLBACKS.items()]
        lines += [f"## {titles[place]}", "", *_table(("model", *BLOCKS), rows), ""]
    return lines


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
