"""The requests and responses of the video worker."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class VideoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Width and height as shown, after a rotation. `sound_codec` is empty if there is no audio.

    `width` is zero if there is audio and no image.
    """

    duration_seconds: float
    width: int
    height: int
    video_codec: str
    sound_codec: str = ""
    frames_per_second: float = 0.0


class ProbeVideo(msgspec.Struct, frozen=True, tag="probe"):
    """The response is `VideoFacts`, or None if nothing can be played."""


class FindScenes(msgspec.Struct, frozen=True, tag="scenes"):
    """The response is the seconds at which scenes begin; none if that takes too long."""


class TakeFrame(msgspec.Struct, frozen=True, tag="frame"):
    """The response is a PNG as blob, at most `side_px` long; an empty blob if there is no frame at that time."""

    at_seconds: float
    side_px: int


class TakeSound(msgspec.Struct, frozen=True, tag="sound"):
    """The response is MP3 in speech quality as blob; an empty blob if there is no audio."""


VideoJob: TypeAlias = ProbeVideo | FindScenes | TakeFrame | TakeSound
