"""The program of the SVG worker: resvg, on copies that `svg` has made self-contained."""

from __future__ import annotations

import msgspec
import resvg_py

from loom.errors import Unreadable
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_msgpack

PAPER = "#ffffff"
"""SVGs are rendered on white, as in browsers."""

PX_PER_INCH = 96.0
"""As in CSS; without it, drawings measured in centimetres have no size."""


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    side_px = decode_msgpack(task.job, int)
    try:
        picture = resvg_py.svg_to_bytes(
            svg_string=document.decode(), width=side_px, height=side_px, background=PAPER, dpi=PX_PER_INCH
        )
    except ValueError as fault:
        raise Unreadable("cannot be rendered", hint="Check it in a browser.") from fault
    return msgspec.msgpack.encode(None), picture


if __name__ == "__main__":
    serve(run)
