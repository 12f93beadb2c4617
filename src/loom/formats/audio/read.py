"""The readers of audio files, run in the worker: duration, sample rate and channels from the bytes."""

from __future__ import annotations

import re
import struct
from struct import Struct
from typing import Final

import msgspec

from loom.formats.audio import AudioFacts, mp3
from loom.formats.audio.adts import read_adts
from loom.formats.sniff.boxes import boxes, find_box, find_path

_U16: Final = Struct("<H").unpack_from
_U32: Final = Struct("<I").unpack_from
_I64: Final = Struct("<q").unpack_from
_PLAIN_TAGS: Final = frozenset((1, 3, 6, 7, 0xFFFE))
"""WAV codecs with a constant number of bytes per sample. For all others, the `fact` chunk has the number of samples."""
_MAX_CHUNKS: Final = 50_000
"""The maximum number of chunks to walk: a file with many more would take seconds."""
_DECODER_SETUP: Final = re.compile(rb"\x05(?:\x80\x80\x80)?[\x02-\x10](..)", re.DOTALL)
"""Descriptor 5 inside `esds`: its length, then five bits of codec, four of sample rate, four of channels."""


def read_audio(data: bytes, media_type: str) -> AudioFacts | None:
    """Return the facts of an audio file, or None if it contains no audio."""
    readers = {
        "audio/wav": _wav,
        "audio/mpeg": _mp3,
        "audio/flac": _flac,
        "audio/ogg": _ogg,
        "audio/mp4": _m4a,
        "audio/aac": _aac,
    }
    try:
        return readers[media_type](data)
    except (struct.error, IndexError, OverflowError):  # truncated inside a header
        return None


def _aac(data: bytes) -> AudioFacts | None:
    found = read_adts(data, mp3.audio_start(data))
    if found is None:
        return None
    return AudioFacts(
        duration_seconds=found.samples / found.sample_rate_hz,
        sample_rate_hz=found.sample_rate_hz,
        channels=found.channels,
        is_cut_off=found.is_cut_off,
    )


class _WavFormat(msgspec.Struct, frozen=True):
    is_plain: bool
    channels: int
    sample_rate_hz: int
    bytes_per_second: int


def _wav(data: bytes) -> AudioFacts | None:
    """Read a WAV file. `fmt ` and `data` may be anywhere among other chunks; a streamed file has no valid sizes."""
    form: _WavFormat | None = None
    sound: tuple[int, int] | None = None
    wide_bytes = samples = 0
    at = 12
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            break
        kind, size = data[at : at + 4], _U32(data, at + 4)[0]
        body = at + 8
        if kind == b"ds64":
            wide_bytes = Struct("<Q").unpack_from(data, body + 8)[0]
        elif kind == b"fmt ":
            tag, channels, rate, speed = Struct("<HHII").unpack_from(data, body)
            form = _WavFormat(tag in _PLAIN_TAGS, channels, rate, speed)
        elif kind == b"fact" and size >= 4:
            samples = _U32(data, body)[0]
        elif kind == b"data" and sound is None:
            if size in (0, 0xFFFFFFFF):  # recorders that write to a pipe leave these values
                size = wide_bytes or len(data) - body
            sound = min(size, len(data) - body), size
        at = body + size + (size & 1)
    if form is None or sound is None or not form.sample_rate_hz:
        return None
    available, declared = sound
    if not available or (form.is_plain and not form.bytes_per_second):
        return None
    is_counted = not form.is_plain and samples and available == declared
    by_size = available / form.bytes_per_second if form.bytes_per_second else None
    return AudioFacts(
        duration_seconds=samples / form.sample_rate_hz if is_counted else by_size,
        sample_rate_hz=form.sample_rate_hz,
        channels=form.channels,
        is_cut_off=available < declared,
    )


def _mp3(data: bytes) -> AudioFacts | None:
    found = mp3.first_frame(data, mp3.audio_start(data))
    if found is None:
        return None
    at, first = found
    seconds = mp3.duration_seconds(data, at, first)
    return AudioFacts(duration_seconds=seconds, sample_rate_hz=first.sample_rate_hz, channels=first.channels)


def _flac(data: bytes) -> AudioFacts | None:
    at = mp3.audio_start(data)
    if data[at : at + 4] != b"fLaC" or data[at + 4] & 0x7F:
        return None
    return _stream_info(data, at + 8)


def _stream_info(data: bytes, at: int) -> AudioFacts:
    """Read 20 bits of sample rate, 3 of channels, 5 of depth and 36 of samples (0 if the encoder did not know)."""
    packed = Struct(">Q").unpack_from(data, at + 10)[0]
    rate, samples = packed >> 44, packed & (1 << 36) - 1
    return AudioFacts(
        duration_seconds=samples / rate if samples and rate else None,
        sample_rate_hz=rate,
        channels=(packed >> 41 & 7) + 1,
    )


def _ogg(data: bytes) -> AudioFacts | None:
    """Read an Ogg file. The last page of the first stream has the number of samples."""
    serial = data[14:18]
    packet = 27 + data[26]
    skipped = 0
    if data[packet : packet + 7] == b"\x01vorbis":
        channels, rate = data[packet + 11], _U32(data, packet + 12)[0]
        clock = rate
    elif data[packet : packet + 8] == b"OpusHead":
        channels, skipped, rate, clock = data[packet + 9], _U16(data, packet + 10)[0], 48_000, 48_000
    elif data[packet : packet + 5] == b"\x7fFLAC":
        info = _stream_info(data, packet + 17)
        channels, rate, clock = info.channels, info.sample_rate_hz, info.sample_rate_hz
    elif data[packet : packet + 8] == b"Speex   ":
        rate, channels = _U32(data, packet + 36)[0], _U32(data, packet + 48)[0]
        clock = rate
    else:
        return None
    samples = _last_position(data, serial)
    seconds = max(0, samples - skipped) / clock if samples is not None and clock else None
    return AudioFacts(duration_seconds=seconds, sample_rate_hz=rate, channels=channels)


def _last_position(data: bytes, serial: bytes) -> int | None:
    at = data.rfind(b"OggS")
    while at > 0:
        if data[at + 14 : at + 18] == serial:
            position = _I64(data, at + 6)[0]
            if position > 0:
                return position
        at = data.rfind(b"OggS", 0, at)
    return None


def _m4a(data: bytes) -> AudioFacts | None:
    movie = find_path(data, b"moov")
    if movie is None:
        return None
    header = find_box(data, *movie, b"mvhd")
    for kind, start, end in boxes(data, *movie):
        media = find_box(data, start, end, b"mdia") if kind == b"trak" else None
        handler = find_box(data, *media, b"hdlr") if media else None
        if media is None or handler is None or data[handler[0] + 8 : handler[0] + 12] != b"soun":
            continue
        clock = find_box(data, *media, b"mdhd")
        entry = _sample_entry(data, *media)
        if entry is None:
            return None
        rate = Struct(">I").unpack_from(data, entry + 32)[0] >> 16
        channels = _aac_channels(data, entry) or Struct(">H").unpack_from(data, entry + 24)[0]
        seconds = _box_duration(data, clock) or _box_duration(data, header)
        return AudioFacts(duration_seconds=seconds, sample_rate_hz=rate or 1, channels=channels)
    return None


def _sample_entry(data: bytes, start: int, end: int) -> int | None:
    place: tuple[int, int] | None = (start, end)
    for kind in (b"minf", b"stbl", b"stsd"):
        place = find_box(data, *place, kind) if place else None
    return place[0] + 8 if place and place[0] + 44 <= place[1] else None


def _aac_channels(data: bytes, entry: int) -> int:
    """Return the number of channels from the decoder's setup, or 0 if it is not there. The sample entry is not
    reliable: it is always 2."""
    at = data.find(b"esds", entry, entry + 512)
    setup = _DECODER_SETUP.search(data, at, at + 96) if at >= 0 else None
    if setup is None:
        return 0
    bits = int.from_bytes(setup[1], "big")
    is_aac, rate_index, layout = bits >> 11 in (1, 2, 3, 4, 5, 29), bits >> 7 & 15, bits >> 3 & 15
    return {7: 8}.get(layout, layout) if is_aac and rate_index < 13 and layout <= 7 else 0


def _box_duration(data: bytes, place: tuple[int, int] | None) -> float | None:
    """Return the duration in `mvhd` or `mdhd`. Both begin with a version, two dates, ticks per second, and ticks."""
    if place is None:
        return None
    at = place[0]
    if data[at] == 1:
        scale, ticks = Struct(">IQ").unpack_from(data, at + 20)
    else:
        scale, ticks = Struct(">II").unpack_from(data, at + 12)
    return ticks / scale if scale and ticks else None
