"""P24: measure decoding and resizing in the sandboxed worker, compared with the same work in this process.

    python -m benchmarks.formats.fenced

A 1080p PNG, a 12-megapixel JPEG and a 12-megapixel HEIC, each rendered for a model (`Fit(1568)`), and the intake of
an image: check and fit in two calls, and in one call that decodes once.
"""

from __future__ import annotations

import io

import pillow_heif
from PIL import Image

from benchmarks.formats.interleaved import medians, table
from benchmarks.formats.resize import photograph, screenshot
from loom.content.recipes import Fit
from loom.formats.facts import IntakeLimits
from loom.formats.image import check_and_render, check_image, render_image
from loom.formats.image.render import check_picture, render_picture

LIMITS = IntakeLimits()
RECIPE = Fit(max_side_px=1568)


def heic() -> bytes:
    file = io.BytesIO()
    image = Image.open(io.BytesIO(photograph()))
    pillow_heif.from_pillow(image).save(file, quality=60)
    return file.getvalue()


def main() -> None:
    images = {
        "1080p PNG": (screenshot(), "image/png"),
        "12-megapixel JPEG": (photograph(), "image/jpeg"),
        "12-megapixel HEIC": (heic(), "image/heic"),
    }
    for title, (data, media_type) in images.items():
        seconds = medians(
            {
                "in process": lambda data=data, kind=media_type: render_picture(data, kind, RECIPE, LIMITS),
                "in the worker": lambda data=data, kind=media_type: render_image(data, kind, RECIPE, LIMITS),
            },
            rounds=9,
        )
        table(f"{title}, {len(data) / 1e6:.1f} MB → 1568 (target: at most 1.3×)", seconds, "in process", unit="ms")
        seconds = medians(
            {
                "check, then fit, in process": lambda data=data, kind=media_type: (
                    check_picture(data, kind, LIMITS),
                    render_picture(data, kind, RECIPE, LIMITS),
                ),
                "check, then fit, in the worker": lambda data=data, kind=media_type: (
                    check_image(data, kind, LIMITS),
                    render_image(data, kind, RECIPE, LIMITS),
                ),
                "decoded once, in the worker": lambda data=data, kind=media_type: check_and_render(
                    data, kind, LIMITS, recipes=(RECIPE,)
                ),
            },
            rounds=9,
        )
        table(f"{title}: intake", seconds, "check, then fit, in process", unit="ms")


if __name__ == "__main__":
    main()
