"""Write a tool that returns an image; the model sees it in its next step."""

from PIL import Image

import loom


@loom.tool
def swatch(red: int, green: int, blue: int) -> Image.Image:
    """Paint a square of one color.

    red: from 0 to 255
    green: from 0 to 255
    blue: from 0 to 255
    """
    return Image.new("RGB", (120, 120), (red, green, blue))


with loom.Loom(model="spark", tools=[swatch]) as lm:
    reply = lm.ask('!tool swatch {"red": 0, "green": 0, "blue": 128}')
    print(reply.text)
    assert "navy" in reply.text
