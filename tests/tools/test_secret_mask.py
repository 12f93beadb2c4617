"""Configured secrets do not leave a tool, however programs spell them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from loom.config import load_config
from loom.content.blocks import ImageBlock, TextBlock, ToolResult
from loom.content.media import Media
from loom.tools.secret_mask import environment_secrets, mask_blocks, mask_result, mask_secrets, mask_value

KEY = 'sk-ant-api03/x+Y_9"quoted\\-abcdef012345'


def spellings(key: str, around: str) -> list[str]:
    data = f"{around}{key}{around}".encode()
    return [
        f"KEY={key}",
        json.dumps({"key": key}),
        f"https://x.example/?key={quote(key, safe='')}",
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        data.hex(),
        data.hex().upper(),
    ]


@settings(max_examples=50)
@given(st.text("abcXYZ019-_+/=.", min_size=12, max_size=80), st.text("pq ", max_size=4))
def test_no_usual_spelling_of_a_secret_survives(key: str, around: str) -> None:
    for text in spellings(key, around):
        masked = mask_secrets(text, [key])
        assert key not in masked and "[secret" in masked
        for decoded in (masked,):
            assert base64.b64encode(key.encode()).decode().rstrip("=")[:-2] not in decoded


def test_the_tail_of_a_long_one_is_shown_and_nothing_of_a_short_one() -> None:
    assert mask_secrets(f"a {KEY} b", [KEY]) == "a [secret …2345] b"
    assert mask_secrets("my password12 here", ["password12"]) == "my [secret] here"
    assert mask_secrets("a short word", ["short", ""]) == "a short word"
    assert mask_secrets("nothing is configured", []) == "nothing is configured"


def test_results_blocks_and_data_are_masked_and_media_are_not_touched() -> None:
    media = ImageBlock(Media(digest="sha256:" + "0" * 64, media_type="image/png", size_bytes=1, name="a.png"))
    result = ToolResult("1", (TextBlock(f"it is {KEY}"), media), data={"env": [{KEY: KEY}], "count": 3})
    masked = mask_result(result, [KEY])
    assert masked.blocks == (TextBlock("it is [secret …2345]"), media)
    assert masked.data == {"env": [{"[secret …2345]": "[secret …2345]"}], "count": 3}
    plain = (TextBlock("nothing"),)
    assert mask_blocks(plain, [KEY])[0] is plain[0]
    assert mask_value(None, [KEY]) is None


def test_every_configured_secret_is_known_and_so_are_those_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "loom.toml").write_text(
        '[keys]\nopenai = "sk-in-the-file-1"\nanthropic = "{env:MY_KEY}"\ngemini = "{env:NOT_SET}"\n'
        '[server]\npassword = "the-password-2"\n[mcp.servers.x]\ncommand = "x"\nenv = { T = "token-of-x-3" }\n'
        '[models.m]\nprovider = "openai"\napi_key = "sk-of-the-model-4"\nheaders = { A = "header-value-5" }\n'
    )
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path), "MY_KEY": "sk-by-reference-6"})
    assert config.secret_values() >= {
        *("sk-in-the-file-1", "sk-by-reference-6", "the-password-2", "token-of-x-3"),
        *("sk-of-the-model-4", "header-value-5"),
    }
    environ = {"OPENAI_API_KEY": "sk-12345678", "GITHUB_TOKEN": "ghp_abcdefgh", "PATH": "/usr/bin:/bin", "A_TOKEN": "x"}
    assert environment_secrets(environ) == {"sk-12345678", "ghp_abcdefgh"}
