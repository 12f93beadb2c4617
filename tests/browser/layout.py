"""What a person would call broken on any screen: controls that overlap, are cut off or out of reach, squeezed text."""

from __future__ import annotations

from pathlib import Path

from browser.client import Client

_CHECK = Path(__file__).with_suffix(".js").read_text()


def layout_problems(client: Client) -> list[str]:
    return client.page.evaluate(_CHECK)
