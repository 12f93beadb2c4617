"""Keys, passwords and addresses: never printed, and followed only when somebody needs them."""

from __future__ import annotations

import logging
import pprint
import traceback
from pathlib import Path

import pytest

from config_world import load
from loom.config import Config, ModelEntry, Secret, Url, load_config, redact
from loom.errors import ConfigError

SENTINELS = {
    "anthropic": "sk-ant-api03-SENTINELaaaaaaaaaaaaaaaaWXYZ",
    "google": "AIzaSySENTINELbbbbbbbbbbbbbbbbbbbbbbbbWXYZ",
    "aws_id": "AKIASENTINELCCCCWXYZ",
    "aws_secret": "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",
    "bearer": "SENTINELdddddddddddddddddWXYZ",
    "password": "SENTINEL-eeee-WXYZ",
    "short": "SENTINEL",
}

EVERYWHERE = """
    model = "{aws_secret}"
    [keys]
    anthropic = "{anthropic}"
    google = "{google}"
    [models.fast]
    api_key = "{aws_id}"
    base_url = "https://user:{password}@example.org/v1?key={bearer}"
    headers = {{ Authorization = "Bearer {bearer}", "X-Key" = "{aws_secret}" }}
    provider = "{google}"
    [agents.a]
    system = "Use the key {anthropic}, or Bearer {bearer}, or password={password}."
    [store]
    url = "postgresql://loom:{password}/@x@db.example.org/loom"
    [bus]
    url = "redis://:{bearer}@cache.example.org/0"
    [media]
    url = "s3://bucket/prefix?access_key={aws_id}&secret={aws_secret}"
    [server]
    password = "{short}"
    [[approval.rules]]
    tool = "run_command"
    pattern = "curl -H 'Authorization: {bearer}' *"
    action = "deny"
    [mcp.servers.x]
    command = "npx"
    args = ["--api-key", "{bearer}", "--token={bearer}", "-k", "{anthropic}"]
    env = {{ TOKEN = "{password}", OTHER = "{short}" }}
    [mcp.servers.y]
    url = "https://mcp.example.org/sse?token={bearer}"
"""


def test_no_secret_is_printed_by_any_way_of_printing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load(
        tmp_path, user=EVERYWHERE.format(**SENTINELS), environ={"LOOM_MODELS__E__API_KEY": SENTINELS["google"]}
    )
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("%r %s", config, config)
    sections = [config.keys, config.models, config.agents, config.store, config.server, config.approval, config.mcp]
    printed = [
        caplog.text,
        pprint.pformat(config),
        pprint.pformat(sections),
        f"{config} {config.models['fast']} {config.mcp.servers['x']} {config.keys['google']} {config.store.url}",
        repr(config.provenance),
        repr(config.provenance.entries),
        *(row.value for row in config.show()),
        *(str(row) for row in config.show()),
        *config.warnings,
    ]
    for text in printed:
        assert "SENTINEL" not in text
    values = {row.key: row.value for row in config.show()}
    assert values["keys.anthropic"] == '"****WXYZ"'
    assert values["server.password"] == '"****"'
    assert values["store.url"] == '"postgresql://****@db.example.org/loom"'
    assert values["models.fast.base_url"] == '"https://****@example.org/v1?key=****WXYZ"'
    assert values["mcp.servers.x.args"] == '["--api-key", "****WXYZ", "--token=****WXYZ", "-k", "****WXYZ"]'


MISPLACED = [
    "[server]\nport = '{secret}'",
    "[server]\npassword = ['{secret}']",
    "[server]\npassword = {{ a = '{secret}' }}",
    "[models.fast]\napi_key = 5\n[server]\nallowed_hosts = '{secret}'",
    "[models.fast]\nbase_url = 'Bearer {secret}'",
    "[models.fast]\nbase_url = 'ftp://u:{secret}@h/?key={secret}'",
    "[models]\nfast = '{secret}'",
    "[models.fast]\nheaders = '{secret}'",
    "[context]\naging = '{secret}'",
    "[server]\npassword = '{secret}\n",
    "[server]\npassword = {secret}\n",
    "[models.fast]\napikey = '{secret}'\n[server]\nport = 0",
    "[mcp.servers.x]\nenv = {{ A = '{secret}' }}",
]


@pytest.mark.parametrize("text", MISPLACED)
@pytest.mark.parametrize("name", ["anthropic", "google", "aws_id", "aws_secret"])
def test_no_secret_is_in_an_error_even_when_it_stands_in_the_wrong_place(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, user=text.format(secret=SENTINELS[name]), strict=True)
    told = "".join(traceback.format_exception(caught.value))
    assert "SENTINEL" not in str(caught.value)
    assert "SENTINEL" not in told.split("loom.errors.ConfigError")[1]
    assert caught.value.__cause__ is None


def test_yaml_errors_do_not_quote_the_file(tmp_path: Path) -> None:
    for text in ("keys: {a: *sk-ant-SENTINEL0000}", "keys:\n  a: 'sk-ant-SENTINEL0000\n", "a: b: sk-ant-SENTINEL0000"):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, user={"loom.yaml": text}, project={})
        assert "SENTINEL" not in str(caught.value)


def test_references_are_followed_when_they_are_needed_and_printed_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "k").write_text("from-home\n")
    config = load(
        tmp_path,
        user={
            "loom.toml": """
                [keys]
                a = "{env:A_KEY}"
                b = "{file:~/k}"
                c = "{file:own/k}"
                [models.m]
                headers = { Authorization = "Bearer {env:A_KEY}", Plain = "x" }
                [store]
                url = "{env:DATABASE_URL}"
                [agents.x]
                system = "{file:own/prompt.md}"
                [agents.y]
                system = "Say {file:own/prompt.md} and {env:A_KEY} as they are."
            """,
            "own/k": "\ufefffrom-beside\r\n",
            "own/prompt.md": "Be kind.\n",
        },
        project={},
        environ={"A_KEY": "from-variable", "DATABASE_URL": "sqlite:///x"},
    )
    assert [config.secret("keys", name) for name in "abc"] == ["from-variable", "from-home", "from-beside"]
    assert config.secrets("models", "m", "headers") == {"Authorization": "Bearer from-variable", "Plain": "x"}
    assert config.secret("store", "url") == "sqlite:///x"
    assert config.secret("server", "password") == ""
    assert config.system_prompt("x") == "Be kind.\n"
    assert config.system_prompt("y") == "Say {file:own/prompt.md} and {env:A_KEY} as they are."
    values = {row.key: row.value for row in config.show()}
    assert values["keys.a"] == '"{env:A_KEY}"'
    assert values["models.m.headers.Authorization"] == '"Bearer {env:A_KEY}"'
    assert values["models.m.headers.Plain"] == '"****"'


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("{env:NOT_THERE}", "the environment variable NOT_THERE is not set."),
        ("{file:not-there}", "{file:not-there} cannot be read: No such file or directory."),
        ("{file:.}", "{file:.} cannot be read: Is a directory."),
        ("{file:a\\u0000b}", "a path in {file:…} cannot contain a NUL character."),
        ("{file:binary}", "{file:binary} is not UTF-8 text."),
        ("{file:empty}", "{file:empty} is empty."),
        ("{file:large}", "{file:large} is over 1000000 bytes."),
    ],
)
def test_a_reference_to_nothing_hurts_only_who_needs_it(tmp_path: Path, written: str, sentence: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "home" / "empty").write_bytes(b"\n")
    (tmp_path / "home" / "large").write_bytes(b"x" * 1_000_001)
    config = load(tmp_path, user=f'[models.m]\napi_key = "{written}"\nprovider = "p"\n', project={})
    assert config.models["m"].provider == "p"
    with pytest.raises(ConfigError) as caught:
        config.secret("models", "m", "api_key")
    assert str(caught.value) == f"{tmp_path}/home/loom.toml: models.m.api_key: {sentence}"


def test_a_config_made_in_code_follows_references_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "from-variable")
    config = Config(models={"m": ModelEntry(api_key=Secret("{env:A_KEY}"), base_url=Url("http://h?key=abc"))})
    assert config.secret("models", "m", "api_key") == "from-variable"
    assert [(row.key, row.value) for row in config.show() if row.key.startswith("models")] == [
        ("models.m.base_url", '"http://h?key=****"'),
        ("models.m.api_key", '"{env:A_KEY}"'),
    ]


def test_secrets_compare_by_value_and_kind_and_are_false_when_empty() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != Url("a")
    assert len({Secret("a"), Secret("a"), Url("a")}) == 2
    assert not Secret()
    assert repr(Secret("0123456789abcdef")) == "Secret('****cdef')"
    with pytest.raises(TypeError, match=r"server\.port is not a secret"):
        Config().secret("server", "port")


def test_redacting_leaves_ordinary_text_alone() -> None:
    for text in (
        "anthropic/claude-sonnet-5-5",
        "sha256:" + "ab" * 32,
        "/usr/lib/python3/dist-packages/some/long/path/here",
        "max_tokens=8192",
        "task-force-of-many-words",
        "https://example.org/v1/models",
        "me@example.org",
    ):
        assert redact(text) == text


def test_a_file_of_another_config_is_not_equal_only_because_it_is_masked_alike(tmp_path: Path) -> None:
    one = load(tmp_path, user='[keys]\na = "0123456789-WXYZ"\n')
    two = load(tmp_path, user='[keys]\na = "9876543210-WXYZ"\n')
    assert repr(one) == repr(two)
    assert one != two
    assert one == load_config(cwd=tmp_path, environ={"LOOM_HOME": one.home, "LOOM_KEYS__A": "0123456789-WXYZ"})
