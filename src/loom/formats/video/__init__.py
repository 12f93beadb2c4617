"""Video: facts and single frames, by ffprobe and ffmpeg within bounds of time, memory and what they can read.

The programs read one file in a folder of their own, with no protocol but plain files, and never a network.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import ExtraMissing, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker.program import run_program

INSTALL_HINT: Final = "Install it: apt install ffmpeg"
MAX_VIDEO_BYTES: Final = 500_000_000
MAX_FRAMES: Final = 100
_MEMORY_SHARE: Final = 2
_FILE_ONLY: Final = (
    "-protocol_whitelist",
    "file",
    "-format_whitelist",
    "mov,matroska,webm,avi,ogg,flv,mpeg,mpegts,asf",
)
"""Playlists and lists of files would make the program open other files or addresses."""
_MOST_PROBED_BYTES: Final = 1_000_000
_SCENE: Final = 0.3
"""How much of a picture changes at a cut, by the measure of ffmpeg (0 to 1)."""


class VideoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Width and height as shown, so after a rotation. `sound_codec` is empty where there is no sound."""

    duration_seconds: float
    width: int
    height: int
    video_codec: str
    sound_codec: str = ""
    frames_per_second: float = 0.0


class VideoFrame(msgspec.Struct, frozen=True):
    """One frame as JPEG, and when it is shown."""

    seconds: float
    data: bytes


def is_available() -> bool:
    """Return whether ffprobe and ffmpeg are installed."""
    return shutil.which("ffprobe") is not None and shutil.which("ffmpeg") is not None


def inspect_video(data: bytes, name: str = "", limits: IntakeLimits = IntakeLimits()) -> VideoFacts:
    """Raises `Unreadable`, `TooLarge`, or `ExtraMissing` without ffprobe."""
    with tempfile.TemporaryDirectory(prefix="loom-video-") as folder:
        return _probe(_written(data, Path(folder), name), name, limits)


def take_frames(
    data: bytes, name: str = "", limits: IntakeLimits = IntakeLimits(), *, count: int = 8, side_px: int = 768
) -> tuple[VideoFacts, list[VideoFrame]]:
    """Return the facts and up to `count` frames in the order of their times, each at most `side_px` long.

    Raises what `inspect_video` raises.
    """
    with tempfile.TemporaryDirectory(prefix="loom-video-") as place:
        folder = Path(place)
        clip = _written(data, folder, name)
        facts = _probe(clip, name, limits)
        times = choose_times(facts.duration_seconds, _scene_times(clip, name, limits), min(count, MAX_FRAMES))
        frames = [_frame(clip, at, side_px, name, limits) for at in times]
        return facts, [frame for frame in frames if frame is not None]


def choose_times(duration_seconds: float, scenes: list[float], count: int) -> list[float]:
    """Return up to `count` times that show most of a clip.

    Each scene, from one cut to the next, gives the frame in its middle, the longest scenes first; what is left of the
    budget goes to the widest gaps between the chosen times.
    """
    if count < 1 or duration_seconds <= 0:
        return [0.0] if count > 0 else []
    cuts = [0.0, *sorted({cut for cut in scenes if 0 < cut < duration_seconds}), duration_seconds]
    spans = sorted(pairwise(cuts), key=lambda span: span[0] - span[1])
    times = sorted((start + end) / 2 for start, end in spans[:count])
    while len(times) < count:
        borders = [0.0, *times, duration_seconds]
        gap, start = max((end - start, start) for start, end in pairwise(borders))
        if gap < 0.5:
            break
        times = sorted([*times, start + gap / 2])
    return [round(at, 3) for at in times]


def _written(data: bytes, folder: Path, name: str) -> Path:
    if len(data) > MAX_VIDEO_BYTES:
        size, allowed = size_label(len(data)), size_label(MAX_VIDEO_BYTES)
        raise TooLarge(f"{name or 'The video'} is {size}; videos up to {allowed} are taken.", name=name)
    if not is_available():
        raise ExtraMissing("Reading videos needs ffmpeg.", hint=INSTALL_HINT)
    clip = folder / "clip"
    clip.write_bytes(data)
    return clip


def _probe(clip: Path, name: str, limits: IntakeLimits) -> VideoFacts:
    command = ["ffprobe", "-v", "error", *_FILE_ONLY, "-of", "json", "-show_format", "-show_streams"]
    _run([*command, "-o", "facts.json", f"file:{clip}"], clip.parent, name, limits)
    facts = _parsed(clip.parent / "facts.json")
    if facts is None:
        raise Unreadable(f"{name or 'The video'} cannot be played: no pictures were found in it.", name=name)
    if facts.width * facts.height > limits.max_pixels:
        raise TooLarge(f"{name or 'The video'} has frames of {facts.width}×{facts.height} pixels.", name=name)
    return facts


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


def _parsed(report: Path) -> VideoFacts | None:
    """None where the program found no pictures, or gave up."""
    if not report.is_file() or not 0 < report.stat().st_size <= _MOST_PROBED_BYTES:
        return None
    try:
        found = msgspec.json.decode(report.read_bytes(), type=_Probed)
    except msgspec.DecodeError:
        return None
    pictures = [
        stream
        for stream in found.streams
        if stream.codec_type == "video" and stream.width and not stream.disposition.get("attached_pic")
    ]
    if not pictures:
        return None
    shown = pictures[0]
    width, height = shown.width, shown.height
    turned = next((data["rotation"] for data in shown.side_data_list if "rotation" in data), 0)
    if isinstance(turned, int | float) and round(turned) % 180 == 90:
        width, height = height, width
    sound = next((stream.codec_name for stream in found.streams if stream.codec_type == "audio"), "")
    return VideoFacts(
        duration_seconds=_number(found.format.duration) or _number(shown.duration),
        width=width,
        height=height,
        video_codec=shown.codec_name,
        sound_codec=sound,
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


def _scene_times(clip: Path, name: str, limits: IntakeLimits) -> list[float]:
    """The times of cuts. A clip that takes too long to look through has none: its frames are taken at even times."""
    where = clip.parent / "scenes.txt"
    looked_at = f"scale=160:-2,select='gt(scene,{_SCENE})',metadata=print:file={where.name}"
    command = ["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", *_FILE_ONLY, "-skip_frame", "noref"]
    command += ["-i", f"file:{clip}", "-an", "-sn", "-dn", "-vf", looked_at, "-f", "null", "-"]
    try:
        _run(command, clip.parent, name, limits)
    except TooLarge:
        return []
    if not where.is_file():
        return []
    marks = (line.partition("pts_time:")[2] for line in where.read_text(errors="replace").splitlines())
    return [_number(mark) for mark in marks if mark][:10_000]


def _frame(clip: Path, at: float, side_px: int, name: str, limits: IntakeLimits) -> VideoFrame | None:
    """None where there is no frame at that time, as at the end of a clip that is cut off."""
    out = clip.parent / "frame.jpg"
    out.unlink(missing_ok=True)
    fitted = f"scale='min({side_px},iw)':'min({side_px},ih)':force_original_aspect_ratio=decrease"
    command = ["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", *_FILE_ONLY, "-ss", f"{at:.3f}"]
    command += ["-i", f"file:{clip}", "-an", "-sn", "-dn", "-frames:v", "1", "-vf", fitted, "-q:v", "3", "-y", out.name]
    _run(command, clip.parent, name, limits)
    if not out.is_file() or out.stat().st_size > limits.max_image_bytes:
        return None
    data = out.read_bytes()
    return VideoFrame(at, data) if data else None


def _run(command: list[str], folder: Path, name: str, limits: IntakeLimits) -> None:
    memory_bytes = limits.worker_memory_bytes * _MEMORY_SHARE
    try:
        run_program(command, folder=folder, memory_bytes=memory_bytes, seconds=limits.deadline_seconds)
    except TimeoutError:
        raise TooLarge(
            f"{name or 'The video'} takes longer than {limits.deadline_seconds:g} s to read.", name=name
        ) from None
