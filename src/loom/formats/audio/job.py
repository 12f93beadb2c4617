"""What runs inside the worker for sound (`python -m loom.formats.audio.job`): our readers of sound files."""

from __future__ import annotations

import msgspec

from loom.formats.audio.read import read_audio
from loom.formats.worker.loop import Task, serve


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    media_type = msgspec.msgpack.decode(task.job, type=str)
    return msgspec.msgpack.encode(read_audio(document, media_type)), b""


if __name__ == "__main__":
    serve(run)
