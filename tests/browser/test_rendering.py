"""What an answer looks like: math, diagrams, tables, collapsible sections, many attachments."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from browser.accessibility import violations
from browser.client import Client, OpenClient
from browser.samples import draw_image, file_payload


def _echo_session(client: Client) -> str:
    session = client.daemon.ask("/v1/sessions", {"model": "echo"})["id"]
    client.page.goto(f"{client.daemon.url}/#/s/{session}")
    expect(client.page.get_by_text("No messages yet.")).to_be_visible()
    return session


def _answer(client: Client, text: str) -> Locator:
    """Let the model answer with exactly this text, in a new session."""
    session = _echo_session(client)
    client.daemon.ask(f"/v1/sessions/{session}/messages", {"text": text})
    expect(client.answers).to_have_count(1)
    client.wait_idle()
    expect(client.answers.locator(".facts")).to_contain_text("out")
    return client.answers.last


def _characters(math: Locator) -> list[str]:
    """What is drawn, without invisible operators."""
    return [
        one
        for one in math.text_content() or ""
        if (one.isprintable() and not one.isspace() and one < "\u2061") or one > "\u2064"
    ]


FORMULAS = {
    r"inline \(a^2 + b^2 = c^2\) here": "a2+b2=c2",
    r"inline $\frac{1}{2}$ here": "12",
    r"$$\sum_{i=1}^n i$$": "∑i=1ni",
    r"\[ x_1 \leq y \]": "x1≤y",
}


@pytest.mark.parametrize("source", FORMULAS)
def test_math_is_rendered(client: Client, source: str) -> None:
    answer = _answer(client, source)
    math = answer.locator(".prose math")
    expect(math).to_have_count(1)
    assert "".join(_characters(math)) == FORMULAS[source]
    assert "\\" not in answer.locator(".prose").inner_text()


def test_prices_code_and_broken_formulas_stay_as_they_are(client: Client) -> None:
    answer = _answer(client, "It costs $5 and $10, or $5-$10.\n\nCode `$x$` stays.\n\nAn open \\(a")
    expect(answer.locator(".prose")).to_contain_text("It costs $5 and $10, or $5-$10.")
    expect(answer.locator(".prose code")).to_have_text("$x$")
    expect(answer.locator("math")).to_have_count(0)
    expect(answer.locator(".prose")).to_contain_text("(a")


def test_the_math_renderer_is_loaded_only_with_a_formula(client: Client) -> None:
    _answer(client, "no formula")
    assert not any("/assets/math-" in url for url in client.requests)
    expect(_answer(client, "$x+y$").locator("math")).to_have_count(1)
    assert sum("/assets/math-" in url for url in client.requests) == 1
    assert client.foreign == []


def test_a_diagram_is_drawn_in_a_frame_without_origin_or_network(client: Client) -> None:
    source = "```mermaid\nflowchart LR\n  A[Client] --> B[Server]\n  B --> C[(Store)]\n```"
    answer = _answer(client, source)
    frame = answer.locator("iframe")
    expect(frame).to_be_visible()
    assert frame.get_attribute("sandbox") == "allow-scripts"
    inside = answer.frame_locator("iframe")
    expect(inside.locator("svg")).to_contain_text("Server")
    box = frame.bounding_box()
    assert box and box["height"] > 60
    origin = client.page.frames[-1].evaluate("[self.origin, document.querySelectorAll('foreignObject').length]")
    assert origin == ["null", 0]
    blocked = client.page.frames[-1].evaluate(f"fetch('{client.daemon.url}/v1/sessions').then(() => 0, () => 1)")
    assert blocked == 1
    answer.get_by_role("button", name="Source").click()
    expect(answer.locator("pre")).to_contain_text("flowchart LR")
    broken = _answer(client, "```mermaid\nflowchart LR\n  A[[[ --> \n```")
    expect(broken).to_contain_text("could not be drawn")
    expect(broken.locator("pre")).to_contain_text("A[[[")


EVERYTHING = """## Identity

The formula \\(e^{i\\pi} + 1 = 0\\) and

$$\\int_0^1 x\\,dx = \\frac{1}{2}$$

| Name | Value |
|---|---|
| alpha | 1 |

```mermaid
flowchart LR
  A[Client] --> B[Server]
```

<details><summary>More</summary>

- one

</details>

```python
def f(x): return x + 1  # comment
```
"""
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"scheme": "dark"}, "phone": {"phone": True}}


@pytest.mark.parametrize("look", LOOKS)
def test_a_rendered_answer_has_no_accessibility_violation(open_client: OpenClient, look: str) -> None:
    client = open_client(**LOOKS[look])
    answer = _answer(client, EVERYTHING)
    expect(answer.locator("math")).to_have_count(2)
    expect(answer.locator("iframe")).to_be_visible()
    assert violations(client) == []
    assert client.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("phone", [False, True])
def test_a_wide_table_scrolls_and_no_word_is_broken(open_client: OpenClient, phone: bool) -> None:
    client = open_client(phone=phone)
    columns = [f"Configuration{number}" for number in range(9)]
    rows = "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * 9, "| " + " | ".join(["value"] * 9) + " |"])
    answer = _answer(client, rows)
    table = answer.locator("table")
    lines = table.evaluate(
        """(table) => [...table.querySelectorAll('th')].map((cell) => {
          const range = document.createRange(); range.selectNodeContents(cell);
          return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size; })"""
    )
    assert lines == [1] * 9, "a word is on one line"
    holder = answer.locator(".wide")
    assert holder.evaluate("(element) => element.scrollWidth > element.clientWidth")
    assert client.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_details_collapse_and_their_content_is_markdown(client: Client) -> None:
    text = "<details><summary>More **facts**</summary>\n\n- one\n- two\n\n</details>\n\nafter"
    answer = _answer(client, text)
    details = answer.locator(".prose details")
    expect(details.locator("summary strong")).to_have_text("facts")
    expect(details.locator("li").first).to_be_hidden()
    details.locator("summary").click()
    expect(details.locator("li").first).to_be_visible()
    expect(answer.locator(".prose > p")).to_have_text("after")


def test_headings_are_spaced_and_code_is_highlighted(client: Client) -> None:
    answer = _answer(client, "## First\n\ntext\n\n## Second\n\nmore\n\n```python\ndef f(): return 1\n```")
    boxes = answer.locator(".prose > *").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect()).map((box) => [box.top, box.bottom])"
    )
    before, after = boxes[2][0] - boxes[1][1], boxes[3][0] - boxes[2][1]
    assert before > after > 0, "a heading is nearer to its own text"
    expect(answer.locator(".hljs-keyword").first).to_have_text("def")


@pytest.mark.parametrize("phone", [False, True])
def test_the_answer_to_a_message_with_many_images_is_in_view(open_client: OpenClient, phone: bool) -> None:
    client = open_client(phone=phone)
    _echo_session(client)
    sizes = [(640, 400), (400, 640), (900, 300), (300, 900), (640, 640), (500, 400), (400, 500)]
    payloads = [file_payload(f"{at}.png", draw_image(str(at), size=size)) for at, size in enumerate(sizes)]
    client.paste_files(*payloads)
    expect(client.attachments).to_have_count(7)
    expect(client.page.locator(".attachments progress")).to_have_count(0)
    client.send_and_wait("the answer is here")
    expect(client.answers.last.get_by_text("the answer is here")).to_be_in_viewport()
    client.page.evaluate("Promise.all([...document.querySelectorAll('.image-open img')].map((one) => one.decode()))")
    expect(client.answers.last.get_by_text("the answer is here")).to_be_in_viewport()
    frames = client.user_messages.last.locator(".image-open").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect()).map((box) => [box.width, box.height].map(Math.round))"
    )
    assert len(frames) == 7
    assert len({tuple(frame) for frame in frames}) == 1, "equal cells"


def test_the_audio_player_fits(open_client: OpenClient) -> None:
    client = open_client(phone=True)
    data = io.BytesIO()
    with wave.open(data, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    client.paste_files(file_payload("note.wav", data.getvalue(), "audio/wav"))
    expect(client.attachments).to_contain_text("note.wav")
    client.send_and_wait("!echo listen")
    player = client.user_messages.last.locator("audio").bounding_box()
    message = client.user_messages.last.bounding_box()
    assert player and message
    assert message["x"] <= player["x"] and player["x"] + player["width"] <= message["x"] + message["width"]
