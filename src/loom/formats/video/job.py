"""The program of the video worker (`python -m loom.formats.video.job`): ffprobe and ffmpeg on one clip.

The clip is written once to an unnamed file, which disappears with the worker. The programs inherit the worker's memory
limit and its process group, so they end with it. They may open plain files only, and no playlists.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import IO, Final

import msgspec

from loom.errors import TooLarge
from loom.formats.video.messages import FindScenes, ProbeVideo, TakeFrame, TakeSound, VideoFacts, VideoJob
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_json, decode_msgpack

_FILE_ONLY: Final = (
    "-protocol_whitelist",
    "file,fd,pipe",
    "-format_whitelist",
    "mov,matroska,webm,avi,ogg,flv,mpeg,mpegts,asf,mp3,wav,flac,aac,aiff,amr,au",
)
"""Playlists and lists of files would make the program open other files or URLs."""
_MOST_OUTPUT_BYTES: Final = 60_000_000
_MOST_SCENES: Final = 10_000
_SCENE: Final = 0.3
"""The share of an image that changes at a cut, by ffmpeg's measure (0 to 1)."""
_DECODED_PIXELS: Final = 4_000_000_000
"""About ten seconds of work. In longer clips, only key frames are compared: encoders put one at most cuts."""
_MOST_SOUND_SECONDS: Final = 4 * 3600
_SPARE_SECONDS: Final = 1.5
"""A program is ended this long before the worker's own deadline, so that the worker survives."""


class _Clip:
    digest = ""
    file: IO[bytes] | None = None
    facts: VideoFacts | None = None


_held = _Clip()


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    if document is None and (_held.file is None or task.digest != _held.digest):
        return None
    if document is not None:
        _hold(task.digest, document)
    seconds = max(0.5, task.seconds - _SPARE_SECONDS)
    job: VideoJob = decode_msgpack(task.job, VideoJob)
    match job:
        case ProbeVideo():
            return msgspec.msgpack.encode(_facts(seconds)), b""
        case FindScenes():
            return msgspec.msgpack.encode(_scenes(seconds)), b""
        case TakeFrame() as wish:
            return msgspec.msgpack.encode(None), _frame(wish, seconds)
        case TakeSound():
            return msgspec.msgpack.encode(None), _sound(seconds)


def _hold(digest: str, document: bytes) -> None:
    if _held.file is not None:
        _held.file.close()
    _held.file = tempfile.TemporaryFile(prefix="loom-video-")  # noqa: SIM115 - it is open as long as the clip is held
    _held.file.write(document)
    _held.file.flush()
    _held.digest, _held.facts = digest, None


def _facts(seconds: float) -> VideoFacts | None:
    if _held.facts is None:
        command = ["ffprobe", "-v", "error", *_FILE_ONLY, "-of", "json", "-show_format", "-show_streams", _clip()]
        _held.facts = _parse_report(_output(command, seconds))
    return _held.facts


class _Stream(msgspec.Struct):
    codec_type: str = ""
    codec_name: str = ""
    width: int = 0
    height: int = 0
    avg_frame_rate: str = "0/1"
    duration: str = "0"
    side_data_list: list[dict[str, object]] = []
    disposition: dict[str, int] = {}


class _Format(msgspec.Struct):
    duration: str = "0"


class _Probed(msgspec.Struct):
    streams: list[_Stream] = []
    format: _Format = msgspec.field(default_factory=_Format)


def _parse_report(report: bytes) -> VideoFacts | None:
    """Return None if the program found nothing to play or failed."""
    try:
        found = decode_json(report, _Probed)
    except msgspec.DecodeError:
        return None
    sound = next((stream for stream in found.streams if stream.codec_type == "audio"), None)
    shown = next(
        (
            stream
            for stream in found.streams
            if stream.codec_type == "video" and stream.width > 0 and not stream.disposition.get("attached_pic")
        ),
        _Stream(),
    )
    if not shown.width and sound is None:
        return None
    width, height = shown.width, shown.height
    turned = next((data["rotation"] for data in shown.side_data_list if "rotation" in data), 0)
    if isinstance(turned, int | float) and round(turned) % 180 == 90:
        width, height = height, width
    return VideoFacts(
        duration_seconds=_number(found.format.duration) or _number((shown if shown.width else sound or shown).duration),
        width=width,
        height=height,
        video_codec=shown.codec_name,
        sound_codec=sound.codec_name if sound is not None else "",
        frames_per_second=_ratio(shown.avg_frame_rate),
    )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e7 else 0.0


def _ratio(text: str) -> float:
    above, _, below = text.partition("/")
    return round(_number(above) / (_number(below) or 1.0), 3)


def _scenes(seconds: float) -> list[float]:
    facts = _facts(seconds)
    if facts is None or not facts.width:
        return []
    pixels = facts.width * facts.height * facts.duration_seconds * max(facts.frames_per_second, 1.0)
    kept = "noref" if pixels <= _DECODED_PIXELS else "nokey"
    looked_at = f"scale=160:-2,select='gt(scene,{_SCENE})',metadata=print:file=-"
    command = [*_ffmpeg("-skip_frame", kept), "-an", "-sn", "-dn", "-vf", looked_at, "-f", "null", "/dev/null"]
    try:
        report = _output(command, seconds / 2)
    except TooLarge:
        return []
    marks = (line.partition("pts_time:")[2].split(" ")[0] for line in report.decode(errors="replace").splitlines())
    return [_number(mark) for mark in marks if mark][:_MOST_SCENES]


def _frame(wish: TakeFrame, seconds: float) -> bytes:
    side = wish.side_px
    fitted = f"scale='min({side},iw)':'min({side},ih)':force_original_aspect_ratio=decrease"
    command = [*_ffmpeg("-ss", f"{wish.at_seconds:.3f}"), "-an", "-sn", "-dn", "-frames:v", "1", "-vf", fitted]
    return _output([*command, "-c:v", "png", "-compression_level", "1", "-f", "image2pipe", "-"], seconds)


def _sound(seconds: float) -> bytes:
    command = [*_ffmpeg("-t", str(_MOST_SOUND_SECONDS)), "-vn", "-sn", "-dn", "-map", "0:a:0?", "-ac", "1"]
    return _output([*command, "-ar", "16000", "-b:a", "48k", "-f", "mp3", "-"], seconds)


def _ffmpeg(*options: str) -> list[str]:
    return ["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", *_FILE_ONLY, *options, "-i", _clip()]


def _clip() -> str:
    return f"file:/dev/fd/{_fd()}"


def _fd() -> int:
    assert _held.file is not None
    return _held.file.fileno()


def _output(command: list[str], seconds: float) -> bytes:
    """Return the output of a program, empty if it fails. Raise `TooLarge` if it takes too long or prints too much."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(_fd(),)
    ) as process:
        assert process.stdout is not None
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TooLarge(f"takes longer than {seconds:.0f} s to read") from None
        finally:
            process.kill()
    if len(printed) > _MOST_OUTPUT_BYTES:
        raise TooLarge("produces too much data")
    return printed


if __name__ == "__main__":
    os.environ.pop("FFREPORT", None)
    serve(run)
