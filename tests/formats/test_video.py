"""Video: facts and frames of clips that ffmpeg made, and clips that attack their reader."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from formats.made_images import VIDEO_TYPES, sample
from loom.content.blocks import VideoBlock
from loom.content.moments import choose_times, parse_time, time_label
from loom.content.recipes import Frame, Page, SoundTrack, Thumb
from loom.errors import TooLarge, Unreadable, Unsupported
from loom.formats import inspect, render
from loom.formats.audio import inspect_audio
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.formats.video import find_scenes, inspect_video, take_frame
from loom.formats.worker import WorkerPool
from made import make_sample, run

LIMITS = IntakeLimits(deadline_seconds=60)


def scenes() -> bytes:
    """Two seconds of red, two of yellow, four of blue, with sound. (Cuts are found by brightness.)"""

    def build(path: Path) -> None:
        sources = [
            part
            for color, seconds in (("red", 2), ("yellow", 2), ("blue", 4))
            for part in ("-f", "lavfi", "-i", f"color={color}:s=320x180:d={seconds}:r=10")
        ]
        sound = ("-f", "lavfi", "-i", "sine=duration=8")
        joined = ("-filter_complex", "[0][1][2]concat=n=3[v]", "-map", "[v]", "-map", "3:a")
        run("ffmpeg", "-loglevel", "error", *sources, *sound, *joined, "-c:v", "mpeg4", "-c:a", "aac", path)

    return make_sample("three-scenes.mp4", build).read_bytes()


@pytest.mark.parametrize("name", sorted(VIDEO_TYPES))
def test_the_facts_of_every_kind_of_clip(name: str) -> None:
    facts = inspect_video(sample(name), name, LIMITS)

    assert (facts.width, facts.height) == (64, 48)
    assert 0.3 <= facts.duration_seconds <= 0.8
    assert facts.video_codec
    assert facts.sound_codec == ""


def test_frames_show_every_scene_with_their_times() -> None:
    clip = scenes()
    facts = inspect_video(clip, "scenes.mp4", LIMITS)
    assert (facts.width, facts.height, facts.video_codec, facts.sound_codec) == (320, 180, "mpeg4", "aac")
    assert abs(facts.duration_seconds - 8) < 0.3

    times = choose_times(facts.duration_seconds, find_scenes(clip, "scenes.mp4", LIMITS), 3)
    assert [round(at) for at in times] == [1, 3, 6]
    frames = [Image.open(io.BytesIO(take_frame(clip, at, limits=LIMITS, side_px=160))) for at in times]
    colors = [frame.convert("RGB").resize((1, 1)).tobytes() for frame in frames]
    assert [[channel > 150 for channel in color] for color in colors] == [
        [True, False, False],
        [True, True, False],
        [False, False, True],
    ]
    assert frames[0].size == (160, 90)


def test_a_clip_becomes_a_block_with_its_facts_and_every_form_of_it() -> None:
    accepted = accept(scenes(), "scenes.mp4", limits=LIMITS)
    assert isinstance(accepted.block, VideoBlock)
    media = accepted.block.media
    assert (media.media_type, media.width, media.height, media.codec) == ("video/mp4", 320, 180, "mpeg4, aac")
    assert "320×180, 8.0 s, mpeg4, aac" in media.label

    frame = render(scenes(), media, Frame(3000, max_side_px=100, formats=("image/jpeg",)), LIMITS)
    assert (frame.media_type, frame.width) == ("image/jpeg", 100)
    assert render(scenes(), media, Thumb(64), LIMITS).width == 64
    sound = render(scenes(), media, SoundTrack(), LIMITS)
    assert inspect_audio(sound.data, sound.media_type, limits=LIMITS).sample_rate_hz == 16_000
    with pytest.raises(Unreadable, match=r"scenes\.mp4 has no frame at 1:39"):
        render(scenes(), media, Frame(99_000), LIMITS)
    with pytest.raises(Unsupported, match="cannot be read as a document"):
        render(scenes(), media, Page(1), LIMITS)


def test_sound_without_pictures_is_no_video() -> None:
    def build(path: Path) -> None:
        run("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "sine=duration=1", path)

    with pytest.raises(Unreadable, match="with sound and no images"):
        inspect(make_sample("tone.wma", build).read_bytes(), "tone.wma", LIMITS)


def test_no_file_of_a_clip_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with WorkerPool().use() as pool:
        inspect_video(scenes(), "a.mp4", LIMITS)
        find_scenes(scenes(), "a.mp4", LIMITS)
        assert list(tmp_path.iterdir()) == []
        pool.close()


def test_times_are_chosen_by_scene_and_budget() -> None:
    assert choose_times(8.0, [2.0, 4.0], 3) == [1.0, 3.0, 6.0]
    assert choose_times(8.0, [2.0, 4.0], 1) == [6.0]
    assert choose_times(60.0, [], 3) == [15.0, 30.0, 45.0]
    assert choose_times(0.0, [], 3) == [0.0]
    assert choose_times(10.0, [], 0) == []
    many = choose_times(600.0, [float(second) for second in range(1, 600)], 12)
    assert len(many) == 12 and many == sorted(many)


def test_a_playlist_opens_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret.ts"
    secret.write_bytes(sample("clip.mp4"))
    playlist = f"#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10.0,\nfile://{secret}\n#EXT-X-ENDLIST\n".encode()
    listing = f"ffconcat version 1.0\nfile '{secret}'\n".encode()

    for hostile in (playlist, listing, b"junk" * 1000, b"", sample("clip.mp4")[:500]):
        with pytest.raises(Unreadable, match=r"^odd\.mp4 cannot be read"):
            inspect_video(hostile, "odd.mp4", LIMITS)


def test_a_clip_past_its_deadline_is_too_large() -> None:
    def inspect_often() -> None:
        # On a busy machine this process may pause until the answer is there. The worker keeps the facts of a clip, so
        # each attempt needs a clip of its own.
        for attempt in range(10):
            inspect_video(scenes() + bytes(8 * attempt), "a.mp4", IntakeLimits(deadline_seconds=0.001))

    with pytest.raises(TooLarge, match=r"a\.mp4 takes longer than 0\.001 s"):
        inspect_often()


def test_a_clip_of_huge_frames_is_too_large() -> None:
    with pytest.raises(TooLarge, match="320×180 pixels"):
        inspect_video(scenes(), "a.mp4", IntakeLimits(max_pixels=10_000))


def test_times_are_written_and_read_as_players_show_them() -> None:
    assert [time_label(at) for at in (7.9, 750, 3723)] == ["0:07", "12:30", "1:02:03"]
    assert [parse_time(text) for text in ("90", "1:30", "0:01:30.5")] == [90, 90, 90.5]
    for wrong in ("", "x", "1:2:3:4", "-5", "1:-5"):
        with pytest.raises(ValueError, match=r"."):
            parse_time(wrong)
