"""AAC without a container: a chain of ADTS frames, each with its own header."""

from __future__ import annotations

from typing import Final, NamedTuple

_RATES_HZ: Final = (
    96_000,
    88_200,
    64_000,
    48_000,
    44_100,
    32_000,
    24_000,
    22_050,
    16_000,
    12_000,
    11_025,
    8_000,
    7_350,
)
_SAMPLES_PER_BLOCK: Final = 1_024


class AdtsStream(NamedTuple):
    samples: int
    sample_rate_hz: int
    channels: int
    is_cut_off: bool


def read_adts(data: bytes, start: int) -> AdtsStream | None:
    """Walk the frames. Return None if there is no frame at `start`."""
    at, end = start, len(data)
    samples = rate = channels = 0
    while at + 7 <= end and data[at] == 0xFF and data[at + 1] & 0xF6 == 0xF0:
        index = data[at + 2] >> 2 & 15
        length = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
        if index >= len(_RATES_HZ) or length < 7:
            break
        if at + length > end:
            return AdtsStream(samples, rate, channels, is_cut_off=True) if samples else None
        if not rate:
            layout = (data[at + 2] & 1) << 2 | data[at + 3] >> 6
            rate, channels = _RATES_HZ[index], {0: 2, 7: 8}.get(layout, layout)
        samples += _SAMPLES_PER_BLOCK * ((data[at + 6] & 3) + 1)
        at += length
    return AdtsStream(samples, rate, channels, is_cut_off=False) if samples else None
