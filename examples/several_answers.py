"""Generate three alternative answers to one question, and regenerate one more."""

import loom
from loom.testing import FakeModel

with loom.Loom(model=FakeModel(["heads", "tails", "the edge", "heads again"])) as lm:
    session = lm.session()
    reply = session.send("toss a coin", n=3)
    print([*(sibling.text for sibling in reply.siblings), reply.text])
    for event in session.regenerate():
        if event.type == "text":
            print(event.text)
    assert [message.text for message in session.path()] == ["toss a coin", "heads again"]
