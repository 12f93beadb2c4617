"""What each model would be shown, before anything is sent."""

import loom
from loom.testing import sample_png

with loom.Loom(model="spark") as lm:
    session = lm.session()
    session.send("what is this?", loom.image(sample_png(900, 500), name="login.png"))
    for receipt in session.plan(["anthropic/claude-opus-5-5", "openai/gpt-5.5", "ollama/llama3.2"]):
        row = next(row for row in receipt.rows if row.kind == "image")
        print(f"{receipt.model:32} {row.rendition:8} {row.tokens:>6} tokens  {row.reason}")
    assert row.rendition == "text"
