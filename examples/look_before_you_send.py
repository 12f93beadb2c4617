"""Preview what each model would receive, without sending anything."""

import loom
from loom.testing import sample_png

with loom.Loom(model="spark") as lm:
    session = lm.session()
    session.send("what is this?", loom.image(sample_png(900, 500), name="login.png"))
    plan = session.plan(["anthropic/claude-opus-5-5", "openai/gpt-5.5", "ollama/llama3.2"])
    print(plan.table())
    assert plan["ollama/llama3.2"].row("login.png").rendition == "text"
    request = plan["anthropic/claude-opus-5-5"].wire()  # the exact JSON, with digest and size for each medium
    print(request["messages"][0]["content"])
