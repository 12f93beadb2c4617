"""A pending approval survives a crash: another process answers it, and the turn continues."""

import os
import subprocess
import sys

import loom


@loom.tool(danger="ask")
def publish(page: str) -> str:
    """Publish a page."""
    return f"{page} is online"


with loom.Loom(model="spark", tools=[publish]) as lm:
    if "asks" in sys.argv:
        session = lm.session()
        for event in session.stream('!tool publish {"page": "index.html"}'):
            if event.type == "approval_requested":
                print(session.id, flush=True)
                os._exit(1)  # simulate a crash

    asked = subprocess.run([sys.executable, __file__, "asks"], stdout=subprocess.PIPE, text=True, check=False)
    session = lm.session(session_id=asked.stdout.strip())
    print([pending.action for pending in session.approvals()])
    for event in session.resume():
        if event.type == "approval_requested":
            session.answer(event.approval, "once")
    print(session.path()[-1].text)
    assert session.approvals() == ()
