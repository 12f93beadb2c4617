"""Recipes and their keys."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.content.recipes import (
    Crop,
    EmbeddedImage,
    Fit,
    Low,
    Ocr,
    Page,
    Recipe,
    Slice,
    Text,
    Thumb,
    recipe_key,
)
from loom.errors import ContentError

FORMATS = st.lists(st.sampled_from(["image/png", "image/jpeg", "image/webp"]), min_size=1, max_size=3, unique=True)
SMALL = st.integers(1, 30)
PAGES = st.tuples(SMALL, SMALL).map(lambda pair: f"{min(pair)}-{max(pair)}") | SMALL.map(str)
RECIPES: st.SearchStrategy[Recipe] = st.one_of(
    st.builds(Fit, SMALL, st.integers(100, 130), FORMATS.map(tuple)),
    st.builds(Low, SMALL, FORMATS.map(tuple)),
    st.builds(Crop, st.tuples(st.just(0), st.just(1), SMALL, st.integers(2, 30)), SMALL, SMALL, FORMATS.map(tuple)),
    st.builds(Thumb, SMALL),
    st.builds(Page, SMALL, SMALL, SMALL, SMALL, FORMATS.map(tuple)),
    st.builds(Slice, PAGES),
    st.builds(Text, PAGES | st.just("")),
    st.builds(Ocr, SMALL),
    st.builds(EmbeddedImage, SMALL),
)


@settings(deadline=None)
@given(st.lists(RECIPES, min_size=2, max_size=12))
def test_two_recipes_have_one_key_only_if_they_are_the_same(recipes: list[Recipe]) -> None:
    for one, other in combinations(recipes, 2):
        assert (recipe_key(one) == recipe_key(other)) == (one == other and type(one) is type(other))


@settings(deadline=None)
@given(RECIPES)
def test_a_key_is_fit_for_a_file_name(recipe: Recipe) -> None:
    assert re.fullmatch(r"[a-z]+2(-[a-z0-9+_.-]+)?", recipe_key(recipe))


def test_keys_are_stable() -> None:
    assert recipe_key(Fit()) == "fit2-2048_5000000_png+jpeg+webp"
    assert recipe_key(Low()) == "low2-512_png+jpeg+webp"
    assert recipe_key(Crop((0, 0, 10, 20))) == "crop2-0+0+10+20_2048_5000000_png+jpeg+webp"
    assert recipe_key(Thumb()) == "thumb2-256"
    assert recipe_key(Page(3)) == "page2-3_150_2048_5000000_png+jpeg+webp"
    assert recipe_key(Slice("2-3")) == "slice2-2-3"
    assert recipe_key(Text()) == "text2"
    assert recipe_key(Ocr()) == "ocr2-0"
    assert recipe_key(EmbeddedImage(2)) == "picture2-2"


def test_impossible_recipes_are_refused() -> None:
    for build, sentence in (
        (lambda: Fit(0), "at least 1 px"),
        (lambda: Fit(formats=()), "one format"),
        (lambda: Crop((5, 0, 5, 9)), "left, top, right, bottom with an area"),
        (lambda: Crop((-1, 0, 5, 9)), "left, top, right, bottom with an area"),
        (lambda: Page(0), "Pages count from one"),
        (lambda: EmbeddedImage(0), "Images count from one"),
        (lambda: Slice(""), "Not a range of pages"),
        (lambda: Text("0"), "Not a range of pages"),
    ):
        with pytest.raises(ContentError, match=sentence):
            build()
