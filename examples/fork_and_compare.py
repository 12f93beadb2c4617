"""Two ways to go on from one place. Neither overwrites the other, and the session goes on with the one you choose."""

import loom

with loom.Loom(model="spark") as lm:
    session = lm.session()
    session.send("hello")
    first = session.send("!echo the first way")
    second = session.at(first.parent).send("!echo the second way")
    print(loom.diff(first, second))
    session.head = first
    print([message.text for message in session.path()])
    assert session.path()[-1].text == first.text != second.text
    fork = session.fork(second.node)  # a session of its own on the same messages
    assert fork.path()[:2] == session.path()[:2]
