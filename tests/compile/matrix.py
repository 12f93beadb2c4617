"""What becomes of each kind of block, in each place, for each kind of model. Data: the tests hold the compiler to it,
and docs/fallback-matrix.md is printed from it.

full      as it is, in its own place
nested    as it is, inside the tool result
hoisted   as it is, in a user's message behind the group of results (or behind the assistant's message)
pages     pictures of the pages of a document or frames of a video, in its own place; `pages, hoisted` behind it
text      the words there are: a description, extracted or recognised text, else a label
low       512 px (a document: its words; a video: four frames)
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
    "Ollama, seeing": "ollama/llava",
    "Ollama, blind": "ollama/llama3.2",
    "DeepSeek, seeing": "deepseek/deepseek-flash",
    "DeepSeek, blind": "deepseek/deepseek-v4-pro",
    "Mistral, seeing": "mistral/mistral-large-latest",
    "Mistral, blind": "mistral/codestral-latest",
    "Voxtral": "mistral/voxtral-small",
    "compatible, seeing": "compatible/qwen3-vl",
    "compatible, blind": "compatible/smollm2-135m",
}

PLACES = ("user", "result", "assistant")
BLOCKS = ("picture", "animation", "PDF", "long PDF", "office file", "sound", "video", "unknown")

_CLAUDE = {
    "picture": ("full", "nested", "hoisted"),
    "animation": ("full", "nested", "hoisted"),
    "PDF": ("full", "nested", "hoisted"),
    "long PDF": ("full", "nested", "hoisted"),
    "office file": ("text", "text", "text"),
    "sound": ("text", "text", "text"),
    "video": ("pages", "pages", "pages, hoisted"),
    "unknown": ("text", "text", "text"),
}
_HOISTING = (
    _CLAUDE
    | dict.fromkeys(("picture", "animation", "PDF", "long PDF"), ("full", "hoisted", "hoisted"))
    | {"video": ("pages", "pages, hoisted", "pages, hoisted")}
)
_BLIND = dict.fromkeys(BLOCKS, ("text", "text", "text"))
_EYES_ONLY = _BLIND | {
    "picture": ("full", "hoisted", "hoisted"),
    "animation": ("full", "hoisted", "hoisted"),
    "PDF": ("pages", "pages, hoisted", "pages, hoisted"),
    "long PDF": ("pages", "pages, hoisted", "pages, hoisted"),
    "video": ("pages", "pages, hoisted", "pages, hoisted"),
}
_RECORDINGS = dict.fromkeys(("sound", "video"), ("full", "hoisted", "hoisted"))
_EARS_ONLY = _BLIND | {"sound": ("full", "hoisted", "hoisted")}

FALLBACKS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Claude": _CLAUDE,
    "Claude on Bedrock": _CLAUDE,
    "GPT (Responses)": _CLAUDE,
    "GPT before 5.4 (Responses)": _CLAUDE
    | {
        "picture": ("full", "hoisted", "hoisted"),
        "animation": ("full", "hoisted", "hoisted"),
        "video": ("pages", "pages, hoisted", "pages, hoisted"),
    },
    "GPT (Chat)": _HOISTING,
    "GPT audio (Chat)": _EARS_ONLY,
    "GPT without tools (Chat)": _HOISTING,
    "Gemini 3, 4": _CLAUDE | _RECORDINGS,
    "Gemini 2.5": _HOISTING | _RECORDINGS,
    "Ollama, seeing": _EYES_ONLY,
    "Ollama, blind": _BLIND,
    "DeepSeek, seeing": _EYES_ONLY,
    "DeepSeek, blind": _BLIND,
    "Mistral, seeing": _EYES_ONLY
    | {
        "picture": ("full", "nested", "hoisted"),
        "animation": ("full", "nested", "hoisted"),
        "PDF": ("pages", "pages", "pages, hoisted"),
        "long PDF": ("pages", "pages", "pages, hoisted"),
        "video": ("pages", "pages", "pages, hoisted"),
    },
    "Mistral, blind": _BLIND,
    "Voxtral": _EARS_ONLY,
    "compatible, seeing": _EYES_ONLY,
    "compatible, blind": _BLIND,
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
    "Ollama, seeing": ("full", "full", "omitted", "omitted"),
    "Ollama, blind": ("full", "full", "omitted", "omitted"),
    "DeepSeek, seeing": ("full", "omitted", "omitted", "omitted"),
    "DeepSeek, blind": ("full", "omitted", "omitted", "omitted"),
    "Mistral, seeing": ("omitted", "omitted", "omitted", "omitted"),
    "Mistral, blind": ("omitted", "omitted", "omitted", "omitted"),
    "Voxtral": ("omitted", "omitted", "omitted", "omitted"),
    "compatible, seeing": ("full", "full", "omitted", "omitted"),
    "compatible, blind": ("full", "full", "omitted", "omitted"),
}

AGES: dict[str, dict[str, tuple[str, str, str]]] = {
    "picture": {"seeing": ("full", "low", "text"), "blind": ("text", "text", "text")},
    "PDF": {"seeing": ("full", "text", "text"), "blind": ("text", "text", "text")},
    "video": {"seeing": ("pages", "low", "text"), "blind": ("text", "text", "text")},
    "sound": {"seeing": ("text", "text", "text"), "blind": ("text", "text", "text")},
}
"""Block → model → (this turn, `full_turns` later, `low_turns` after that). A PDF keeps its words, then its label."""


def page() -> str:
    """docs/fallback-matrix.md."""
    lines = [
        "# Fallback matrix",
        "",
        "What becomes of each kind of block, in each place, for each kind of model. Printed from",
        "`tests/compile/matrix.py`, which the tests hold the compiler to, cell by cell. Every cell but `full`,",
        "`nested` and `hoisted` has its reason in the receipt. A long PDF is cut to the pages that one reads at once,",
        "and that is said.",
        "",
        *_words(),
        "",
        *_tables(),
        "## Thinking",
        "",
        "Reasoning goes back only to the model that made it, and only where its platform takes it.",
        "",
        *_table(("model", *THOUGHTS), [(name, *cells) for name, cells in THINKING.items()]),
        "",
        "## Age",
        "",
        "The first form is for this turn, the second for the turns after it, the third for all that is older.",
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
    return _table(("word", "meaning"), [tuple(part.strip() for part in line.split("  ", 1)) for line in meanings])


def _tables() -> list[str]:
    titles = {"user": "In a user's message", "result": "In a tool result", "assistant": "In an assistant's message"}
    lines: list[str] = []
    for at, place in enumerate(PLACES):
        rows = [(name, *(cells[block][at] for block in BLOCKS)) for name, cells in FALLBACKS.items()]
        lines += [f"## {titles[place]}", "", *_table(("model", *BLOCKS), rows), ""]
    return lines


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]
