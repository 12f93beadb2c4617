"""Duration, rate and channels from the bytes, against what ffmpeg was asked to write."""

from __future__ import annotations

import random
import struct

import pytest

from formats.made_images import SOUND_TYPES, sample
from loom.errors import MediaError, Unreadable
from loom.formats import inspect
from loom.formats.audio import inspect_audio

CHANNELS = {"float.wav": 2, "surround.wav": 6}
RATES = {"mpeg2.mp3": 22_050, "tone.opus": 48_000}


@pytest.mark.parametrize("name", SOUND_TYPES)
def test_duration_rate_and_channels_are_those_that_were_written(name: str) -> None:
    found = inspect(sample(name), name)
    assert found.media.media_type == SOUND_TYPES[name]
    assert found.media.duration_seconds == pytest.approx(2.5, abs=0.12)  # MP3 and AAC pad to whole frames
    assert (found.sample_rate_hz, found.channels) == (RATES.get(name, 44_100), CHANNELS.get(name, 1))


def wav(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WAVE" + b"".join(
        kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


FORMAT = (b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 2, 16))
SECOND = (b"data", bytes(16_000))


@pytest.mark.parametrize(
    "chunks",
    [
        [FORMAT, SECOND],
        [SECOND, FORMAT],
        [(b"LIST", b"odd"), (b"JUNK", bytes(28)), FORMAT, (b"fact", bytes(4)), SECOND, (b"LIST", b"at the end")],
    ],
    ids=["usual", "data first", "among others"],
)
def test_the_chunks_of_a_wav_may_stand_in_any_order(chunks: list[tuple[bytes, bytes]]) -> None:
    assert inspect_audio(wav(*chunks), "audio/wav").duration_seconds == 1.0


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_stream_that_never_wrote_its_size_lasts_to_the_end_of_the_file(size: int) -> None:
    data = wav(FORMAT, SECOND).replace(b"data" + struct.pack("<I", 16_000), b"data" + struct.pack("<I", size))
    facts = inspect_audio(data, "audio/wav")
    assert (facts.duration_seconds, facts.is_cut_off) == (1.0, False)


def test_a_wav_that_was_cut_off_says_so() -> None:
    found = inspect(wav(FORMAT, SECOND)[:-8000], "cut.wav")
    assert found.media.duration_seconds == 0.5
    assert found.notices == ("cut.wav ends before the length that it declares.",)


def test_large_tags_and_padding_before_the_first_mp3_frame_are_skipped() -> None:
    bare = sample("bare.mp3")
    tag = b"ID3\x04\0\0" + bytes((0, 1, 0, 0)) + b"\xff\xfb\x90\x64" * 4096
    for before in (tag, tag + tag, tag + bytes(700)):
        facts = inspect_audio(before + bare, "audio/mpeg")
        assert facts.duration_seconds == pytest.approx(2.5, abs=0.1)


def test_an_mp3_without_any_header_of_its_length_is_walked_frame_by_frame() -> None:
    bare = sample("bare.mp3")
    assert inspect_audio(bare * 4, "audio/mpeg").duration_seconds == pytest.approx(10.1, abs=0.4)
    assert inspect_audio(bare + b"TAG" + bytes(125), "audio/mpeg").duration_seconds == pytest.approx(2.5, abs=0.1)


def test_a_length_that_the_file_is_too_short_for_is_not_believed() -> None:
    whole = sample("variable.mp3")
    facts = inspect_audio(whole[: len(whole) // 2], "audio/mpeg")
    assert facts.duration_seconds == pytest.approx(1.25, abs=0.3)


def test_a_length_by_the_fraunhofer_encoder_is_read() -> None:
    bare = sample("bare.mp3")
    header = b"VBRI" + struct.pack(">HHHII", 1, 0, 75, len(bare), 1000)
    data = bare[:36] + header + bare[36 + len(header) :]
    assert inspect_audio(data, "audio/mpeg").duration_seconds == pytest.approx(1000 * 1152 / 44_100)


@pytest.mark.parametrize(
    "data", [wav(FORMAT), wav(SECOND), wav(FORMAT, (b"data", b"")), b"RIFF\4\0\0\0WAVE", b"fLaC", b"OggS" + bytes(90)]
)
def test_a_file_without_sound_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable, match=r"quiet\.bin is damaged: it contains no audio\."):
        inspect(data, "quiet.bin")


def test_sound_behind_endless_chunks_or_tags_is_not_looked_for() -> None:
    tag = b"ID3\3" + bytes(6)
    with pytest.raises(Unreadable, match="it contains no audio"):
        inspect(wav(*[(b"junk", b"")] * 60_000, FORMAT, SECOND), "endless.wav")
    with pytest.raises(Unreadable, match="it contains no audio"):
        inspect(tag * 10_000 + sample("bare.mp3"), "endless.mp3")


def test_damaged_sound_gives_facts_or_a_typed_error() -> None:
    chance = random.Random(7)
    sounds = [sample(name)[:8000] + sample(name)[-2000:] for name in SOUND_TYPES]
    for _ in range(4000):
        data = bytearray(chance.choice(sounds))
        for _ in range(chance.choice((1, 2, 8))):
            at = chance.randrange(len(data)) if chance.random() < 0.3 else chance.randrange(200)
            data[at] = chance.choice((0, 127, 255, chance.randrange(256)))
        try:
            found = inspect(bytes(data[: chance.randrange(1, len(data) + 1)]))
        except MediaError:
            continue
        assert found.media.duration_seconds is None or found.media.duration_seconds >= 0
