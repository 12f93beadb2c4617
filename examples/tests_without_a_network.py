"""Your own code, tested against a model that follows a script and remembers what it was shown."""

import loom
from loom.testing import ScriptedProvider, sample_png

model = ScriptedProvider(["it says 502"])
reply = loom.ask(
    "what does it say?", loom.image(sample_png(900, 500)), model="anthropic/claude-opus-5-5", provider=model
)
assert reply.text == "it says 502"
(shown,) = model.prompts[0].media()
assert (shown.width, shown.height) == (900, 500)
print("the model was shown", shown.width, "×", shown.height, shown.media_type)
