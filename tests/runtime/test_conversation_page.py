"""A conversation as a page for people: rendered, without script, requests, secrets or paths of this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.content.blocks import ToolCall, ToolResult
from loom.content.messages import Message, assistant, tool, user
from loom.runtime.conversation_page import conversation_page
from loom.runtime.export import export_session
from loom.store.nodes import Node
from loom.testing import memory_runtime

TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "article",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ),
    *("p", "pre", "code", "span", "a", "em", "strong", "s", "hr", "br", "ul", "ol", "li", "blockquote", "div", "time"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption", "img"),
}
PIECES = st.sampled_from(
    [
        *(
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[a](javascript:alert(1))",
            "![x](http://a/b.png)",
        ),
        *("<details>", "</details>", "<summary>s</summary>", "<details open><summary><b>x</b></summary>", "```html\n"),
        *(
            "```\n",
            "| a | b |\n|---|---|\n| <i> | `c` |\n",
            "$a_1 < b_1$",
            "\\(x\\)",
            "$$\n<script>\n$$",
            "> ",
            "- ",
            "# ",
            "\n\n",
        ),
        *(
            "https://example.org/?a=1&b=<x>",
            "<https://example.org>",
            "\"'>",
            "&lt;",
            "[x]: javascript:alert(1)",
            "\\",
            "*",
            "_",
        ),
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), min_size=1, max_size=12).map("".join)


class PageReader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open_details = 0
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.open_details += tag == "details"

    def handle_endtag(self, tag: str) -> None:
        self.open_details -= tag == "details"

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(messages: Sequence[Message], system: str = "") -> str:
    nodes = [
        Node(
            id=f"{at}", parent_id=None, depth=at, message=message, system=None, source="user", meta={}, tags=(),
            bookmark="", created_at=1.0,
        )
        for at, message in enumerate(messages)
    ]  # fmt: skip
    return conversation_page("Title", system, nodes, {}, lambda text: text)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_no_text_becomes_a_script_a_request_or_an_open_fold(text: str):
    said = text if text.strip() else "x"
    found = PageReader(page_of([user(said), assistant(said), user("the end")], said))
    assert set(found.tags) <= TAGS and "img" not in found.tags
    assert found.open_details == 0
    for name, value in found.attributes:
        assert not name.startswith("on") and name != "src"
        assert name != "href" or re.match(r"(?!\s*(javascript|vbscript|data|file):)", value, re.IGNORECASE)


@pytest.mark.parametrize("tex", ["\\(a_i\\)", "\\[x \\\\ y\\]", "$a*b*c$", "$$\\int_0^1 x^2\\,dx$$"])
def test_tex_stays_as_it_was_written(tex: str):
    assert tex in PageReader(page_of([user("?"), assistant(f"Then {tex} follows.")])).text


@given(cut=st.integers(1, 45))
def test_an_answer_that_was_cut_anywhere_and_continued_is_rendered_as_one(cut: int):
    text = "Do this:\n\n```sh\nmake run\n```\n\nThen *look* at it."

    def answer_of(*parts: str) -> str:
        return page_of([user("?"), *map(assistant, parts)]).partition('<article class="answer">')[2]

    assert "<pre" in answer_of(text)
    assert answer_of(text[:cut], text[cut:]) == answer_of(text)


def test_answers_are_rendered_and_calls_stand_with_their_results():
    answer = (
        "## Plan\n\n- **one**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\ndef f(): ...\n```\n\nhttps://example.org"
    )
    answer += "\n\n<details>\n<summary>More</summary>\n\nhidden *words*\n\n</details>\n\nbehind"
    call = assistant(ToolCall("c1", "read_file", {"path": "a.txt"}))
    page = page_of([user("# not a heading"), call, tool(ToolResult("c1", user("found it").blocks)), assistant(answer)])
    found = PageReader(page)
    assert {"h4", "strong", "li", "table", "span", "a", "em"} <= set(found.tags)
    assert page.count("<article") == 2 and "# not a heading" in found.text
    assert re.search(r"<details><summary>read_file <code>a.txt</code></summary>.*found it.*</details>", page, re.DOTALL)
    assert re.search(r"<details><summary>More</summary>\s*<p[^>]*>hidden <em>words</em></p>\s*</details>", page)


@pytest.mark.parametrize("form", ["md", "html"])
async def test_secrets_and_the_workspace_stay_here_also_in_highlighted_code(form: str, monkeypatch: pytest.MonkeyPatch):
    secret = "sk-ant-" + "Ab1_" * 10
    monkeypatch.setenv("ANTHROPIC_API_KEY", secret)
    async with memory_runtime() as runtime:
        session = await runtime.session(system="In /srv/team/project.", workspace="/srv/team/project")
        said = f"```python\nkey = '{secret}'\npath = '/srv/team/project/a.py'\n```"
        await runtime.stores.sessions.append_to_head(session.id, [user(said), assistant(said)])
        stored = await runtime.stores.sessions.get(session.id)
        left = (await export_session(runtime, stored, form)).decode()  # pyright: ignore[reportArgumentType]
        shown = PageReader(left).text if form == "html" else left
        assert secret not in shown and "Ab1_Ab1_" not in shown
        assert "/srv/team" not in shown and shown.count("[workspace]") == 3
