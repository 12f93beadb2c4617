"""Continue from one message in two ways. Both branches are kept; you choose the one to continue."""

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
    fork = session.fork(second.node)  # a new session with the same messages
    assert fork.path()[:2] == session.path()[:2]
