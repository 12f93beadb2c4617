"""Letting a picture in decodes it once, and hands on the renditions that were made from those pixels."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from formats.made_images import IMAGE_TYPES, sample
from loom.content.recipes import Fit, Low
from loom.formats import render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept

RECIPES = (Fit(max_side_px=40), Low(side_px=20), Fit())


@pytest.mark.parametrize("name", sorted(IMAGE_TYPES.keys() - {"pages.tif"}))
def test_renditions_of_the_intake_are_those_that_rendering_makes(name: str) -> None:
    data = sample(name)

    admitted = accept(data, name, recipes=RECIPES)

    assert [made.recipe for made in admitted.renditions] == list(RECIPES)
    for made in admitted.renditions:
        later = render(data, admitted.block.media, made.recipe)
        assert (made.rendered.width, made.rendered.height) == (later.width, later.height)
        assert (made.rendered.media_type, made.rendered.notices) == (later.media_type, later.notices)
        if not name.endswith(".jpg"):  # JPEG can be decoded at a smaller size, which rounds differently
            assert made.rendered.data == later.data


def test_a_rendition_that_is_the_picture_itself_is_the_same_object() -> None:
    data = sample("rgb.png")
    cleaned = render(data, accept(data).block.media, Fit()).data

    (made,) = accept(cleaned, recipes=(Fit(),)).renditions

    assert made.rendered.data is cleaned


def test_a_recipe_that_cannot_be_done_keeps_no_picture_out() -> None:
    data = sample("rgb.png")

    admitted = accept(data, recipes=(Fit(formats=("image/x-icon",)), Low()))

    assert [made.recipe for made in admitted.renditions] == [Low()]


def test_a_picture_over_the_limit_hands_on_the_renditions_of_its_copy() -> None:
    file = io.BytesIO()
    Image.effect_noise((900, 700), 90).save(file, "PNG")

    admitted = accept(file.getvalue(), "large.png", limits=IntakeLimits(max_image_bytes=200_000), recipes=(Low(),))

    (made,) = admitted.renditions
    assert max(made.rendered.width or 0, made.rendered.height or 0) == 512
    assert any("a copy of" in notice for notice in admitted.notices)
