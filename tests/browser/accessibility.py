"""What axe finds on a page."""

from __future__ import annotations

from typing import Final

from axe_playwright_python.sync_playwright import Axe

from browser.client import Client

# What moves once has come to rest; what pulses for ever is left alone.
SETTLED: Final = """Promise.all(document.getAnimations()
  .filter((one) => one.effect.getComputedTiming().iterations !== Infinity).map((one) => one.finished))"""


def violations(client: Client) -> list[str]:
    """Return the violations on the page. Styles that move are finished first: axe measures the colors that it sees."""
    client.page.evaluate(SETTLED)
    results = Axe().run(client.page).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in results for node in one["nodes"][:3]]
