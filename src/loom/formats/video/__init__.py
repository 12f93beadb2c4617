"""Video: facts, scenes, single frames and the audio track, by ffprobe and ffmpeg in a worker process.

The rest of Loom uses `VideoFormat`. The programs read one unnamed file, may open plain files only, and run within the
worker's limits of time and memory.
"""

from __future__ import annotations

import shutil
from typing import Final

import msgspec

from loom.content.media import Media, digest_of
from loom.content.moments import choose_times, time_label
from loom.content.recipes import Fit, Frame, Ocr, Recipe, Rendered, Scenes, SoundTrack, Text, Thumb
from loom.errors import ExtraMissing, MediaError, TooLarge, Unreadable
from loom.formats.builtin import BuiltinFormat, cannot, read_words
from loom.formats.facts import Inspection, IntakeLimits
from loom.formats.sniff.kinds import label_of
from loom.formats.video.messages import FindScenes, ProbeVideo, TakeFrame, TakeSound, VideoFacts, VideoJob
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

INSTALL_HINT: Final = "Install it: apt install ffmpeg"
VIDEO_WORKER: Final = WorkerKind("loom.formats.video.job", memory_share=2)
_READ_FRAMES: Final = 12
"""The number of frames whose text is read by OCR for a text-only model."""
_READ_SIDE_PX: Final = 1600
_THUMB_SHARE: Final = 0.1
"""The position of the thumbnail frame in the clip: the very first frame is often black."""


def is_available() -> bool:
    """Return whether ffprobe and ffmpeg are installed."""
    return shutil.which("ffprobe") is not None and shutil.which("ffmpeg") is not None


def inspect_video(data: bytes, name: str = "", limits: IntakeLimits = IntakeLimits()) -> VideoFacts:
    """Return the facts. Raise `Unreadable` if nothing in it can be played, `TooLarge`, and `ExtraMissing` without
    ffprobe."""
    facts = None
    if data:
        facts = decode_msgpack(_ask(ProbeVideo(), data, name, limits)[0], VideoFacts | None)
    if facts is None:
        raise Unreadable(
            f"{name or 'The video'} cannot be read: it contains no images.",
            name=name,
            hint="Play it in another program; if that works, save it from there as MP4.",
        )
    if facts.width * facts.height > limits.max_pixels:
        raise TooLarge(f"{name or 'The video'} has frames of {facts.width}×{facts.height} pixels.", name=name)
    return facts


def has_only_sound(data: bytes, name: str, limits: IntakeLimits) -> bool:
    """Return whether a file has audio and no images."""
    answer, _ = _ask(ProbeVideo(), data, name, limits)
    facts = decode_msgpack(answer, VideoFacts | None)
    return facts is not None and not facts.width and bool(facts.sound_codec)


def find_scenes(data: bytes, name: str = "", limits: IntakeLimits = IntakeLimits(), digest: str = "") -> list[float]:
    """Return the seconds at which scenes begin; an empty list if the search takes too long."""
    answer, _ = _ask(FindScenes(), data, name, limits, digest, seconds=limits.conversion_seconds)
    return decode_msgpack(answer, list[float])


def take_frame(
    data: bytes,
    at_seconds: float,
    name: str = "",
    limits: IntakeLimits = IntakeLimits(),
    *,
    side_px: int = 1024,
    digest: str = "",
) -> bytes:
    """Return the frame at this time as PNG. Raise `Unreadable` if there is none."""
    _, picture = _ask(TakeFrame(at_seconds, side_px), data, name, limits, digest)
    if not picture:
        raise Unreadable(f"{name or 'The video'} has no frame at {time_label(at_seconds)}.", name=name)
    return picture


def take_sound(data: bytes, name: str = "", limits: IntakeLimits = IntakeLimits(), digest: str = "") -> bytes:
    """Return the audio as MP3 in speech quality. Raise `Unreadable` if there is none."""
    _, sound = _ask(TakeSound(), data, name, limits, digest, seconds=limits.conversion_seconds)
    if not sound:
        raise Unreadable(f"{name or 'The video'} has no sound.", name=name)
    return sound


class VideoFormat(BuiltinFormat):
    recipes: tuple[type[Recipe], ...] = (Scenes, Frame, SoundTrack, Text, Thumb)

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        facts = inspect_video(data, name, limits)
        if not facts.width:
            raise Unreadable(
                f"{name or 'The file'} is {label_of(media_type)} with sound and no images.",
                name=name,
                hint="Save it as MP3 or M4A and attach that.",
            )
        media = Media(
            digest=digest_of(data),
            media_type=media_type,
            size_bytes=len(data),
            width=facts.width,
            height=facts.height,
            duration_seconds=round(facts.duration_seconds, 3),
            codec=", ".join(codec for codec in (facts.video_codec, facts.sound_codec) if codec),
            name=name,
        )
        return Inspection(media=media, category="video")

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        from loom.formats.image import render_image

        name, digest = media.name, media.digest
        match recipe:
            case Scenes():
                scenes = find_scenes(data, name, limits, digest)
                return Rendered(data=msgspec.json.encode(scenes), media_type="application/json")
            case Frame():
                at, side = recipe.at_ms / 1000, recipe.max_side_px
                picture = take_frame(data, at, name, limits, side_px=side, digest=digest)
                return render_image(picture, "image/png", Fit(side, recipe.max_encoded_bytes, recipe.formats), limits)
            case Thumb():
                at = _THUMB_SHARE * inspect_video(data, name, limits).duration_seconds
                return render_image(take_frame(data, at, name, limits, digest=digest), "image/png", recipe, limits)
            case SoundTrack():
                return Rendered(data=take_sound(data, name, limits, digest), media_type="audio/mpeg")
            case Text():
                return Rendered(data=_words_on_screen(data, media, limits).encode(), media_type="text/plain")
            case Ocr():
                raise cannot(media, "read as an image")
            case _:
                raise cannot(media, "read as a document")


def _words_on_screen(data: bytes, media: Media, limits: IntakeLimits) -> str:
    """Return each line of text under the time at which it is first seen."""
    duration = media.duration_seconds or inspect_video(data, media.name, limits).duration_seconds
    times = choose_times(duration, find_scenes(data, media.name, limits, media.digest), _READ_FRAMES)
    seen: set[str] = set()
    parts: list[str] = []
    for at in times:
        try:
            picture = take_frame(data, at, media.name, limits, side_px=_READ_SIDE_PX, digest=media.digest)
        except Unreadable:
            continue
        words = read_words(Rendered(data=picture, media_type="image/png"), limits).data.decode()
        new = [line for line in words.splitlines() if line.strip() and line not in seen]
        seen.update(new)
        if new:
            parts.append(f"[on screen at {time_label(at)}]\n" + "\n".join(new))
    return "\n\n".join(parts)


def _ask(
    job: VideoJob, data: bytes, name: str, limits: IntakeLimits, digest: str = "", *, seconds: float = 0.0
) -> tuple[msgspec.Raw, bytes]:
    if not is_available():
        raise ExtraMissing("Reading videos needs ffmpeg.", hint=INSTALL_HINT)
    try:
        return current_pool().call(
            VIDEO_WORKER,
            msgspec.msgpack.encode(job),
            data,
            digest=digest or digest_of(data),
            name=name or "The video",
            limits=limits,
            seconds=seconds or limits.deadline_seconds,
        )
    except MediaError as error:
        error.name = name
        raise


VIDEO: Final = VideoFormat("video")
