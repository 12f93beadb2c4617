"""The program of the audio worker (`python -m loom.formats.audio.job`). It runs our readers of audio files."""

from __future__ import annotations

import msgspec

from loom.formats.audio.read import read_audio
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_msgpack


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    media_type = decode_msgpack(task.job, str)
    return msgspec.msgpack.encode(read_audio(document, media_type)), b""


if __name__ == "__main__":
    serve(run)
