"""Test your code with a fake model: it returns scripted answers and records its requests."""

from pathlib import Path

import loom
from loom.testing import FakeModel, sample_png

Path("login.png").write_bytes(sample_png(900, 500))
model = FakeModel(["it says 502"])
assert loom.ask("what does it say?", "login.png", model=model).text == "it says 502"
assert model.requests[0].images[0].size == (900, 500)
print("the model received", model.requests[0].images[0])
