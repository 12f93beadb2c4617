"""Use a session: stream an answer, then ask about one page of a document."""

import loom
from loom.testing import sample_pdf, sample_png

with loom.Loom(model="spark") as lm:
    session = lm.session("triage")
    for event in session.stream("what is wrong?", loom.image(sample_png(), name="login.png")):
        if event.type == "text":
            print(event.text, end="", flush=True)
    manual = loom.document(sample_pdf("cover", "The proxy gives up after 30 seconds."), pages="2", name="manual.pdf")
    reply = session.send("what does page 2 say about the proxy?", manual)
    print(reply.text, reply.usage)
    assert "30 seconds" in reply.text
    assert [message.role for message in session.path()] == ["user", "assistant"] * 2
