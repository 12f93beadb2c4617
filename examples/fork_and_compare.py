"""Two continuations of one conversation; neither overwrites the other."""

import loom

with loom.Loom(model="spark") as lm:
    session = lm.session()
    start = session.send("hello")
    session.send("!echo the first way")
    other = session.fork(start.node)
    other.send("!echo the second way")
    print(session.path()[-1].text, "|", other.path()[-1].text)
    assert session.path()[:2] == other.path()[:2]
    assert session.path()[-1] != other.path()[-1]
