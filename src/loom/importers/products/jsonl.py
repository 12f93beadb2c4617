"""OpenAI JSONL: one sample per line, as in fine-tuning and batch files.

{"messages": […]}                                                    a conversation
{"input": {"messages": […]}, "preferred_output": […], …}             one question, two answers
{"custom_id": …, "body": {"messages": […]}}                          a request of a batch
{"prompt": …, "completion": …}                                       the older shape
"""

from __future__ import annotations

from typing import Any

from loom.content.json_values import first_text, get_list, get_object, get_text
from loom.importers.products.conversation import ForeignConversation


def is_sample(line: dict[str, Any]) -> bool:
    return bool(_messages(line)) or bool(get_text(line.get("prompt")) and get_text(line.get("completion")))


def sample_of(line: dict[str, Any]) -> ForeignConversation:
    body = get_object(line.get("body")) or line
    model = first_text(body, "model")
    found = ForeignConversation(
        kind="OpenAI JSONL", model=model, title=first_text(line, "title", "custom_id"), created_at=line.get("created")
    )
    parent = ""
    for number, message in enumerate(_messages(line), 1):
        found.add(f"message-{number}", parent, get_object(message), model=model)
        parent = f"message-{number}"
    for name in ("preferred_output", "non_preferred_output"):
        above = parent
        for number, message in enumerate(get_list(line.get(name)), 1):
            found.add(f"{name}-{number}", above, get_object(message), model=model)
            above = f"{name}-{number}"
        if name == "preferred_output" and above != parent:
            found.head = above
    return found


def _messages(line: dict[str, Any]) -> list[Any]:
    for holder in (line, get_object(line.get("input")), get_object(line.get("body"))):
        if isinstance(holder.get("messages"), list):
            return get_list(holder.get("messages"))
    prompt, completion = get_text(line.get("prompt")), get_text(line.get("completion"))
    if prompt and completion:
        return [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    return []
