"""Approve, change or deny tool calls with a function. It is called once for every call."""

import loom
from loom import Allow, ApprovalRequest, Deny


@loom.tool
def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError(f"never reached: {path}")


@loom.tool
def write(path: str, text: str) -> str:
    """Write a file."""
    return f"{path}: {text}"


def gate(request: ApprovalRequest) -> Allow | Deny:
    print(f"{request.tool} wants to: {request.action}")
    if request.tool == "delete":
        return Deny("nothing is deleted here")
    return Allow({**request.arguments, "path": f"drafts/{request.arguments['path']}"})


with loom.Loom(model="spark", tools=[delete, write], approve=gate) as lm:
    session = lm.session()
    session.send('!tool delete {"path": "notes.txt"}')
    session.send('!tool write {"path": "notes.txt", "text": "hello"}')
    denied, changed = [result for message in session.path() for result in message.results]
    print(loom.text_of(denied), loom.text_of(changed), sep="\n")
    assert denied.is_error
    assert "drafts/notes.txt: hello" in loom.text_of(changed)
