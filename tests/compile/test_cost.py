"""The published formulas, against the vectors that their publishers give."""

from __future__ import annotations

import pytest

from loom.compile.cost import (
    Calibration,
    audio_tokens,
    calibrate,
    fitted28,
    fitted32,
    image_tokens,
    page_tokens,
    text_tokens,
)
from loom.models import TokenRule
from loom.providers.catalog import model

STANDARD = TokenRule(image="patches28", max_edge_px=1568, max_tokens=1568)
HIGH_RES = TokenRule(image="patches28", max_edge_px=2576, max_tokens=4784)


@pytest.mark.parametrize(
    ("width", "height", "standard", "high_res"),
    [
        (1, 1, 1, 1),
        (29, 28, 2, 2),
        (200, 200, 64, 64),
        (256, 256, 100, 100),
        (512, 512, 361, 361),
        (1000, 1000, 1296, 1296),
        (1024, 1024, 1369, 1369),
        (1092, 1092, 1521, 1521),
        (1280, 720, 1196, 1196),
        (1920, 1080, 1560, 2691),
        (2000, 1500, 1564, 3888),
        (3840, 2160, 1560, 4784),
        (8000, 10, 56, 92),
    ],
)
def test_claude_counts_28_pixel_patches_in_both_tiers(width: int, height: int, standard: int, high_res: int) -> None:
    assert image_tokens(width, height, STANDARD) == standard
    assert image_tokens(width, height, HIGH_RES) == high_res
    assert image_tokens(height, width, STANDARD) == standard


def test_claude_scales_to_the_largest_size_that_fits() -> None:
    assert fitted28(1920, 1080, STANDARD) == (1456, 819)
    assert fitted28(3840, 2160, HIGH_RES) == (2576, 1449)
    assert fitted28(640, 480, STANDARD) == (640, 480)


@pytest.mark.parametrize(
    ("width", "height", "multiplier", "budget", "tokens"),
    [
        (256, 256, 1.2, 0, 77),
        (512, 512, 1.2, 1536, 308),
        (768, 1024, 1.2, 1536, 922),
        (1024, 1024, 1.2, 1536, 1229),
        (1280, 720, 1.2, 1536, 1104),
        (2048, 768, 1.2, 1536, 1844),
        (1800, 2400, 1.0, 1536, 1452),
        (1920, 1080, 1.2, 0, 2448),
        (3840, 2160, 1.2, 0, 9792),
        (4032, 3024, 1.2, 0, 14364),
        (4032, 3024, 1.2, 10_000, 11868),
        (2560, 1440, 1.2, 2_500, 2931),
        (1024, 1024, 1.62, 1536, 1659),
    ],
)
def test_openai_counts_32_pixel_patches(width: int, height: int, multiplier: float, budget: int, tokens: int) -> None:
    rule = TokenRule(image="patches32", multiplier=multiplier, budget=budget)
    assert image_tokens(width, height, rule) == tokens


def test_openai_shrinks_over_its_budget_to_whole_patches() -> None:
    assert fitted32(1800, 2400, 1536) == (1056, 1408)


@pytest.mark.parametrize(
    ("width", "height", "base", "per_tile", "detail", "tokens"),
    [
        (1024, 1024, 85, 170, "high", 765),
        (2048, 4096, 85, 170, "high", 1105),
        (4096, 8192, 85, 170, "low", 85),
        (1024, 1024, 70, 140, "high", 630),
        (1024, 1024, 2833, 5667, "high", 25501),
    ],
)
def test_older_openai_models_count_tiles(
    width: int, height: int, base: int, per_tile: int, detail: str, tokens: int
) -> None:
    rule = TokenRule(image="tiles", base=base, per_tile=per_tile)
    assert image_tokens(width, height, rule, detail) == tokens  # pyright: ignore[reportArgumentType]  data


def test_gemini_3_counts_by_ceiling_whatever_the_pixels() -> None:
    rule = model("gemini/gemini-3.7-flash").tokens
    assert image_tokens(10, 10, rule) == image_tokens(4000, 3000, rule) == 1120
    assert image_tokens(4000, 3000, rule, "low") == 280
    assert page_tokens(rule) * 10 == 5600
    assert audio_tokens(60, rule) == 1500


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(300, 200, 258), (384, 384, 258), (960, 540, 1548), (1024, 1024, 1032), (1920, 1080, 1548)],
)
def test_gemini_2_5_counts_crops(width: int, height: int, tokens: int) -> None:
    rule = model("gemini/gemini-2.5-pro").tokens
    assert image_tokens(width, height, rule) == tokens
    assert audio_tokens(60, rule) == 1920


def test_ollama_counts_768_for_each_picture() -> None:
    rule = model("ollama/llava").tokens
    counts = [0, 1, 2, 3, 5, 8, 13, 21]
    assert [sum(image_tokens(640, 480, rule) for _ in range(n)) for n in counts] == [
        0,
        768,
        1536,
        2304,
        3840,
        6144,
        9984,
        16128,
    ]


def test_the_catalog_gives_each_model_its_own_formula() -> None:
    photo = (1920, 1080)
    expected = {
        "anthropic/claude-opus-5-5": 2691,
        "anthropic/claude-sonnet-4-5": 1560,
        "openai/gpt-5.4-mini": image_tokens(*photo, TokenRule(image="patches32", multiplier=1.2, budget=1536)),
        "openai-chat/gpt-4o": 1105,
        "gemini/gemini-4-argon": 1120,
        "gemini/gemini-2.5-flash": 1548,
        "deepseek/deepseek-flash": 384,
    }
    found = {reference: image_tokens(*photo, model(reference).tokens) for reference in expected}
    assert found == expected


def test_text_is_counted_by_a_ratio_and_dense_scripts_by_the_character() -> None:
    rule = TokenRule(chars_per_token=4.0)
    assert text_tokens("abcd" * 100, rule) == 100
    assert text_tokens("漢字" * 50, rule) == 100
    assert text_tokens("", rule) == 0


def test_after_three_answers_the_estimate_is_within_ten_percent() -> None:
    calibration = Calibration()
    for raw, real in [(1_000, 1_310), (2_000, 2_580), (5_000, 6_600)]:
        calibration = calibrate(calibration, round(raw * calibration.ratio), real)
    assert calibration.samples == 3
    assert abs(10_000 * calibration.ratio - 13_000) < 1_300


def test_an_answer_without_usage_teaches_nothing() -> None:
    assert calibrate(Calibration(ratio=1.5, samples=2), 1_000, 0) == Calibration(ratio=1.5, samples=2)


def test_what_pages_cost_less_than_estimated_makes_no_text_cheaper() -> None:
    """A PDF whose pages are estimated as pictures, on a platform that counts a tenth of that."""
    first = calibrate(Calibration(), 50_000, 6_000, media=45_000)
    assert first == Calibration(ratio=1.0, samples=1)

    learned = calibrate(Calibration(), 10_000, 9_000)
    assert learned.ratio == pytest.approx(0.9)
    assert calibrate(learned, 50_000, 6_000, media=45_000).ratio == pytest.approx(0.9)
    assert calibrate(Calibration(ratio=1.6, samples=3), 50_000, 10_000, media=45_000).ratio == 1.0


def test_that_media_cost_more_than_estimated_is_believed() -> None:
    assert calibrate(Calibration(), 10_000, 20_000, media=9_000).ratio == 2.0
    assert calibrate(Calibration(), 10_000, 8_000, media=4_000).ratio == pytest.approx(0.8)
