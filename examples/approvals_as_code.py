"""A rule instead of a person: nothing is deleted here."""

from typing import Literal

import loom


@loom.tool
def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError("never reached")


def gate(tool: str, action: str) -> Literal["allow", "ask", "deny"]:
    print(f"{tool} wants to: {action}")
    return "deny" if tool == "delete" else "allow"


with loom.Loom(model="spark", tools=[delete], approve=gate) as lm:
    session = lm.session()
    session.send('!tool delete {"path": "notes.txt"}')
    (result,) = session.path()[2].results
    print(loom.text_of(result))
    assert result.is_error
