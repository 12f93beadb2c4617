"""Define your own block type: every model gets its text, models that support images get its image."""

from dataclasses import dataclass

import loom
from loom.testing import sample_png


@dataclass(frozen=True)
class Map:
    lat: float
    lon: float


drawn = loom.register_block(
    Map, fallback=lambda place: f"[map: {place.lat}, {place.lon}]", image=lambda _: sample_png(64, 64)
)

with loom.Loom(model="spark") as lm:
    session = lm.session()
    print(session.send("what is here?", drawn(Map(48.2, 16.4))))
    stored = session.path()[0].blocks[1]
    assert isinstance(stored, loom.UnknownBlock)
    assert stored.data["lat"] == 48.2
    print(session.plan(["anthropic/claude-opus-5-5", "ollama/llama3.2"]).table())
