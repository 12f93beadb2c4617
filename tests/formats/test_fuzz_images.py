"""Thousands of damaged pictures: each is shown, and decodes again, or is refused by a typed error. Seeded."""

from __future__ import annotations

import io
import random
import threading
import warnings

import pytest
from PIL import Image

from formats.made_images import IMAGE_TYPES, sample
from loom.content.recipes import Crop, Fit, Low, Recipe, Thumb
from loom.errors import MediaError
from loom.formats import inspect, render

RECIPES: list[Recipe] = [
    Fit(),
    Fit(max_side_px=20),
    Fit(formats=("image/jpeg",)),
    Fit(formats=("image/webp",), max_side_px=50),
    Fit(formats=("image/gif",)),
    Low(side_px=16),
    Thumb(side_px=32),
    Crop(box=(0, 0, 5, 5)),
]
IN_PROCESS = [name for name, media_type in IMAGE_TYPES.items() if media_type != "image/tiff"]


def damaged(data: bytes, chance: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        near = min(len(spoilt), 200) if chance.random() < 0.5 else len(spoilt)
        at = chance.randrange(near)
        match chance.randrange(6):
            case 0:
                spoilt[at] = chance.randrange(256)
            case 1:
                spoilt[at] = chance.choice((0, 127, 128, 255))
            case 2:
                spoilt[at : at + 4] = chance.choice((bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\xff\xff"))
            case 3:
                del spoilt[at : at + chance.randrange(1, 64)]
            case 4:
                spoilt[at:at] = chance.randbytes(chance.randrange(1, 64))
            case _:
                del spoilt[at + 1 :]
        if not spoilt:
            return b"\0"
    return bytes(spoilt)


def outcome(data: bytes, name: str, recipe: Recipe) -> str:
    try:
        found = inspect(data, name)
        if found.category != "image":
            return found.category
        rendered = render(data, found.media, recipe)
    except MediaError as error:
        return error.code
    image = Image.open(io.BytesIO(rendered.data))
    image.load()
    assert Image.MIME[image.format or ""] == rendered.media_type
    assert image.size == (rendered.width, rendered.height)
    return "shown"


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_picture_is_shown_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    samples = {name: sample(name) for name in IN_PROCESS}
    outcomes: dict[str, int] = {}
    for _ in range(700):
        name = chance.choice(IN_PROCESS)
        found = outcome(damaged(samples[name], chance), name, chance.choice(RECIPES))
        outcomes[found] = outcomes.get(found, 0) + 1
    assert outcomes["shown"] > 100
    assert outcomes["media.unreadable"] > 100
    assert set(outcomes) <= {"shown", "media.unreadable", "media.unsupported", "media.too_large", "text", "audio"}


def test_a_damaged_tiff_is_shown_or_refused_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(9)
    samples = [sample(name) for name, media_type in IMAGE_TYPES.items() if media_type == "image/tiff"]
    outcomes = {outcome(damaged(chance.choice(samples), chance), "a.tif", chance.choice(RECIPES)) for _ in range(300)}
    assert {"shown", "media.unreadable"} <= outcomes
    assert capfd.readouterr() == ("", "")


def test_decoding_in_many_threads_leaves_the_warnings_alone() -> None:
    before = list(warnings.filters)
    done: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        done.extend(
            outcome(damaged(sample("palette-clear.png"), chance), "a.png", chance.choice(RECIPES)) for _ in range(30)
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 240
    assert list(warnings.filters) == before
