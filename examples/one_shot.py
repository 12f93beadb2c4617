"""Ask one question about one image, with the built-in demo model: no API key, no network."""

from pathlib import Path

import loom
from loom.testing import sample_png

Path("login.png").write_bytes(sample_png(90, 50))
reply = loom.ask("what is this?", "login.png", model="spark")
print(reply)
assert "90×50" in reply.text
