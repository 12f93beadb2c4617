"""What a notebook shows of replies, receipts, plans and trees: HTML in which nothing is markup that was said."""

from __future__ import annotations

from loom.runtime import Runtime
from loom.runtime.plan import plan_request
from loom.testing import memory_runtime

HOSTILE = "<script>alert(1)</script>"


async def _shown(runtime: Runtime) -> list[str]:
    session = await runtime.session(model="spark")
    reply = await session.send(f"!echo {HOSTILE}")
    bundle = reply._repr_mimebundle_()
    assert bundle["text/plain"] == bundle["text/markdown"] == HOSTILE
    plan = await plan_request(session, ["spark", "anthropic/claude-opus-5"])
    tree = await session.tree()
    return [bundle["text/html"], reply.receipt._repr_html_(), plan._repr_html_(), tree._repr_html_()]


async def test_replies_receipts_plans_and_trees_show_themselves() -> None:
    async with memory_runtime() as runtime:
        shown = await _shown(runtime)
    for html in shown:
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
    assert "tokens in" in shown[0]
    assert "<th>shown as</th>" in shown[1]
    assert "anthropic/claude-opus-5" in shown[2]
    assert "<b>" in shown[3]
