"""What the video worker is asked, and what it answers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class VideoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Width and height as shown, so after a rotation. `sound_codec` is empty where there is no sound.

    `width` is zero where there is sound and no picture.
    """

    duration_seconds: float
    width: int
    height: int
    video_codec: str
    sound_codec: str = ""
    frames_per_second: float = 0.0


class ProbeVideo(msgspec.Struct, frozen=True, tag="probe"):
    """Answered with `VideoFacts`, or None where nothing can be played."""


class FindScenes(msgspec.Struct, frozen=True, tag="scenes"):
    """Answered with the seconds at which scenes begin; with none where that takes too long."""


class TakeFrame(msgspec.Struct, frozen=True, tag="frame"):
    """Answered with a PNG as blob, at most `side_px` long; an empty blob where there is no frame at that time."""

    at_seconds: float
    side_px: int


class TakeSound(msgspec.Struct, frozen=True, tag="sound"):
    """Answered with MP3 in the quality of speech as blob; an empty blob where there is no sound."""


VideoJob: TypeAlias = ProbeVideo | FindScenes | TakeFrame | TakeSound
