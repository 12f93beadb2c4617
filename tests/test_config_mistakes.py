"""What people get wrong, and the exact sentences that they are told."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from config_world import load
from loom.config import Config, load_config
from loom.config.key_file import read_keys
from loom.config.schema_tree import actual_text
from loom.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[server]\nport = "abc"', 'loom.toml: server.port: expected a whole number from 1 to 65535, got "abc"'),
        ("[server]\nport = 0", "loom.toml: server.port: expected a whole number from 1 to 65535, got 0"),
        ("[server]\nport = 80.0", "loom.toml: server.port: expected a whole number from 1 to 65535, got 80.0"),
        ("[server]\nport = true", "loom.toml: server.port: expected a whole number from 1 to 65535, got true"),
        ("[server]\nhost = ''", 'loom.toml: server.host: expected text that is not empty, got ""'),
        ("server = 5", "loom.toml: server: expected a table, got 5"),
        ("model = 5", "loom.toml: model: expected text, got 5"),
        ("model = 2026-01-01", "loom.toml: model: expected text, got a date or time"),
        ("keys = 'hunter2'", "loom.toml: keys: expected a table, got text"),
        ("models = []", "loom.toml: models: expected a table, got a list"),
        ("[models]\nfast = 'gpt'", 'loom.toml: models.fast: expected a table, got "gpt"'),
        ('[models.""]', 'loom.toml: models."": expected a name that is not empty'),
        (
            "[models.fast]\ntemperature = nan",
            "loom.toml: models.fast.temperature: expected a number from 0 to 2, got nan",
        ),
        (
            "[models.fast]\nbase_url = 'localhost:80'",
            (
                "loom.toml: models.fast.base_url: expected a URL that begins with http:// or https://, "
                'got "localhost:80"'
            ),
        ),
        (
            "[models.fast.capabilities]\nvision = 'yes'",
            'loom.toml: models.fast.capabilities.vision: expected true or false, got "yes"',
        ),
        (
            "[models.fast]\napi_key = '{cmd:pass show k}'",
            (
                "loom.toml: models.fast.api_key: expected text, {env:NAME} or {file:PATH}, "
                "got a reference that begins with {cmd:"
            ),
        ),
        (
            "[context]\naging = 'sometimes'",
            'loom.toml: context.aging: expected one of "every-turn", "off", "stepped", got "sometimes"',
        ),
        (
            "[server]\nallowed_hosts = 'a'",
            'loom.toml: server.allowed_hosts: expected a list of texts, got "a"',
        ),
        (
            "[server]\nallowed_hosts = ['a', 5]",
            "loom.toml: server.allowed_hosts: expected a list of texts, got 5 as item 2",
        ),
        (
            "[webhooks.a]\nurl = 'https://example.org'\nsecret = 's'\nevents = ['turn_failed', 'turn_done']",
            (
                'loom.toml: webhooks.a.events: expected a list, each one of "approval_requested", "turn_failed", '
                '"turn_finished", got "turn_done" as item 2'
            ),
        ),
        ("[agents.a]\nvision = 'maybe'", 'loom.toml: agents.a.vision: expected true, false or "auto", got "maybe"'),
        ("[agents.a]\nid = 'b'", 'loom.toml: agents.a.id: expected "a", the name of its table, or no id at all'),
        ("[agents.a]\nid = 1", "loom.toml: agents.a.id: expected text, got 1"),
        ("[[agents]]\nvision = true", "loom.toml: agents[1]: expected a table with an id"),
        ("[[agents]]\nid = 'a'\n[[agents]]\nid = 'a'", 'loom.toml: agents[2].id: "a" is defined twice'),
        ("[approval]\nrules = 'none'", 'loom.toml: approval.rules: expected a list of tables, got "none"'),
        ("[approval]\nrules = ['none']", 'loom.toml: approval.rules[1]: expected a table, got "none"'),
        (
            "[[approval.rules]]\ntool = 'a'\naction = 'allow'\n[[approval.rules]]\ntool = 'a'\naction = 'never'",
            'loom.toml: approval.rules[2].action: expected one of "allow", "ask", "deny", got "never"',
        ),
        ("[[approval.rules]]\naction = 'deny'", "loom.toml: approval.rules[1]: expected a key tool"),
        (
            "[[approval.rules]]\ntool = 'run_command'\npatern = 'git *'\naction = 'allow'",
            "loom.toml: approval.rules[1].patern: is not a known key; did you mean approval.rules[1].pattern?",
        ),
    ],
)
def test_a_wrong_value_names_the_file_the_key_and_what_was_expected(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, project=text)
    assert str(caught.value) == sentence
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"command": ""}', "loom.toml: mcp.servers.x: expected either a command or a url"),
        (
            '{"command": "npx", "url": "http://a.example"}',
            "loom.toml: mcp.servers.x: expected either a command or a url",
        ),
    ],
)
def test_a_tool_server_is_a_program_or_an_address(tmp_path: Path, text: str, sentence: str) -> None:
    text = text.replace('":', '" =')
    with pytest.raises(ConfigError) as caught:
        load_user(tmp_path, {"loom.toml": f"[mcp.servers]\nx = {text}\n"})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        (
            "LOOM_SERVER__PORT",
            "abc",
            'LOOM_SERVER__PORT: expected a whole number from 1 to 65535, got "abc"',
        ),
        ("LOOM_SERVER", "5", "LOOM_SERVER: expected a table, got 5"),
        ("LOOM_SERVER", "{", 'LOOM_SERVER: expected a table, got "{"'),
        (
            "LOOM_SERVER",
            '{"port": "abc"}',
            'LOOM_SERVER: port: expected a whole number from 1 to 65535, got "abc"',
        ),
        ("LOOM_MODELS__FAST", '{"model": null}', "LOOM_MODELS__FAST: model: expected text, got null"),
        ("LOOM_MODELS", '{"a b": {"model": 3}}', 'LOOM_MODELS: "a b".model: expected text, got 3'),
        ("LOOM_CONTEXT__MAX_TOKENS", "9" * 5000, None),
        ("LOOM_APPROVAL__RULES", "a, b", 'LOOM_APPROVAL__RULES: expected a list of tables, got "a, b"'),
        (
            "LOOM_MCP__SERVERS__X__TIMEOUT_SECONDS",
            "5",
            "LOOM_MCP__SERVERS__X__TIMEOUT_SECONDS: expected either a command or a url",
        ),
        ("LOOM_TRUSTED_FOLDERS", "here", 'LOOM_TRUSTED_FOLDERS: expected folders that begin with / or ~/, got "here"'),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, text: str, sentence: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, environ={variable: text})
    if sentence:
        assert str(caught.value) == sentence
    else:
        assert str(caught.value).startswith(f"{variable}: expected a whole number from 1 to 1000000000, got ")
        assert len(str(caught.value)) < 200


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            tmp_path,
            user="cleanup_after_days = -1\n",
            project="[images]\nmax_side = 1\n",
            environ={"LOOM_CONTEXT__AGING": "no"},
            flags={"server.port": 0},
        )
    assert str(caught.value).splitlines() == [
        "4 errors in the configuration:",
        f"  {tmp_path}/home/loom.toml: cleanup_after_days: expected a whole number from 0 to 36500, got -1",
        "  loom.toml: images.max_side: expected a whole number from 64 to 16384, got 1",
        '  LOOM_CONTEXT__AGING: expected one of "every-turn", "off", "stepped", got "no"',
        "  flags: server.port: expected a whole number from 1 to 65535, got 0",
    ]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"loom.toml": "a = 1\nb = = 2\n"}, "loom.toml: line 2, column 5: Invalid value."),
        ({"loom.toml": "[a\n"}, "loom.toml: line 1, column 3: Expected ']' at the end of a table declaration."),
        ({"loom.toml": "model = 'a'\nmodel = 'b'\n"}, "loom.toml: line 2, column 12: Cannot overwrite a value."),
        ({"loom.yaml": "a: 1\nb: [1\n"}, "loom.yaml: line 3, column 1: expected ',' or ']', but got '<stream end>'."),
        ({"loom.yaml": "model: a\nmodel: b\n"}, "loom.yaml: line 2: model is defined twice."),
        ({"loom.yaml": "- a\n- b\n"}, "loom.yaml: line 1: expected keys and values, such as `model: …`."),
        ({"loom.yaml": "server:\n  5: x\n"}, "loom.yaml: line 2: expected a name before the colon; put it in quotes."),
        ({"loom.yaml": "? [a, b]\n: c\n"}, "loom.yaml: line 1: expected a name before the colon; put it in quotes."),
        (
            {"loom.yaml": "a: &a {b: 1}\nc:\n  <<: *a\n"},
            "loom.yaml: line 3: << (merge) is not supported; write the keys out.",
        ),
        ({"loom.yaml": "a: !!python/object:os.system x\n"}, "loom.yaml: line 1: tags (!…) are not supported."),
        ({"loom.yaml": "a: 1\n---\nb: 2\n"}, "loom.yaml: line 2, column 1: but found another document."),
        ({"loom.yaml": "a: 1\nb: \x00\n"}, "loom.yaml: line 2: a character that YAML does not allow."),
        ({"loom.yaml": "a: !!int x\n"}, "loom.yaml: line 1: this number cannot be read."),
    ],
)
def test_text_that_cannot_be_read_names_the_file_and_the_line(
    tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_user(tmp_path, files)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("loom.toml", b"model = '\xff'\n", "line 1: this is not UTF-8 text."),
        ("loom.toml", b"#" * 100_001, "is over 100000 bytes"),
        ("loom.toml", b"a = " + b"[" * 50_000, "is nested too deeply"),
        ("loom.toml", b"a = " + b"9" * 5_000, "a number has too many digits"),
        ("loom.yaml", b"a: " + b"[" * 5_000, "is nested too deeply"),
        ("loom.yaml", b"a: " + b"[" * 100 + b"]" * 100, "too many values"),
        ("loom.yaml", b"a: " + b"9" * 5_000, "this number cannot be read"),
        ("loom.yaml", b"a: &a [*a]", "too many values"),
        (
            "loom.yaml",
            b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 10)) for n in range(98, 112)),
            "too many values",
        ),
    ],
)
def test_hostile_files_are_refused_quickly_and_by_name(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})
    assert str(caught.value).startswith(f"{name}: ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("other", ["loom.yaml", ".loom/loom.toml"])
def test_two_files_in_one_folder_are_one_too_many(tmp_path: Path, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, project={"loom.toml": "", other: ""})
    expected = f"loom.toml and {other} both exist; only one can be used. Keep one and delete the other."
    assert str(caught.value) == expected


@pytest.mark.parametrize("place", ["home/loom.toml", "loom.toml", ".loom/loom.yaml", "home/keys.toml"])
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_in_the_place_of_a_file_is_named(tmp_path: Path, place: str, kind: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("nowhere.toml")
    what = {"folder": "is not a file", "link": "is a link to a file that does not exist"}[kind]
    with pytest.raises(ConfigError, match=rf"{re.escape(place)}: {what}\. Remove it"):
        load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path / "home")})


def test_unknown_keys_are_warnings_that_name_the_one_that_was_meant(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        project="prot = 5\nport = 9\n[server]\nprot = 5\n[models.fast]\nMODEL = 'x'\n[zebra]\na = 1\n",
        environ={"LOOM_SERVER__PROT": "1", "LOOM_MODEL__NAME": "1", "LOOM_ZEBRA": "1"},
    )
    assert config.warnings == (
        "loom.toml: prot: is not a known key; did you mean prompt?",
        "loom.toml: port: is not a known key; did you mean server.port?",
        "loom.toml: server.prot: is not a known key; did you mean server.port?",
        "loom.toml: models.fast.MODEL: is not a known key; did you mean models.fast.model?",
        "loom.toml: zebra: is not a known key",
        "LOOM_MODEL__NAME: is not a known setting; did you mean LOOM_MODEL?",
        "LOOM_SERVER__PROT: is not a known setting; did you mean LOOM_SERVER__PORT?",
        "LOOM_ZEBRA: is not a known setting",
    )


def test_with_strict_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^loom.toml: modle: is not a known key; did you mean model\?$"):
        load(tmp_path, project="modle = 'x'\n", strict=True)


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="The working directory no longer exists"):
        load_config(environ={"LOOM_HOME": "/nowhere"})


def load_user(folder: Path, files: dict[str, str]) -> Config:
    """The files as the user's own, in a folder that is the working directory too."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return load_config(cwd=folder, environ={"LOOM_HOME": str(folder)})


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "null"), (datetime.time(8), "a date or time"), (Path("/x"), "a value of type PosixPath")],
)
def test_a_value_of_no_kind_that_files_have_is_named_by_what_it_is(value: object, words: str) -> None:
    assert actual_text(value) == words


@pytest.mark.parametrize(
    ("user", "key", "words"),
    [
        ('trusted_folders = ["/a\\u0000b"]', "trusted_folders", "cannot be a folder"),
        ('trusted_folders = ["{folder}/loop"]', "trusted_folders", "cannot be a folder"),
    ],
)
def test_a_folder_that_cannot_be_one_names_the_file_and_the_key(
    tmp_path: Path, user: str, key: str, words: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, user=user.replace("{folder}", str(tmp_path)))
    assert (Path(caught.value.file).name, caught.value.key) == ("loom.toml", key)


@pytest.mark.parametrize("name", ["loom.toml", "loom.yaml"])
def test_a_prompt_whose_path_holds_a_nul_names_the_file_and_the_key(tmp_path: Path, name: str) -> None:
    written = (
        '[agents.a]\nsystem = "{file:a\\u0000.md}"'
        if name == "loom.toml"
        else ('agents: {a: {system: "{file:a\\0.md}"}}')
    )
    with pytest.raises(ConfigError, match="NUL") as caught:
        load(tmp_path, user={}, project={name: written})
    assert (caught.value.file, caught.value.key) == (name, "agents.a.system")


def test_a_file_of_keys_is_read_as_the_configuration_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    assert read_keys(file) == {}
    file.write_text('\ufeff[keys]\nopenai = "k"\n', "utf-8")
    assert read_keys(file) == {"openai": "k"}


@pytest.mark.parametrize(
    ("text", "words"), [('keys = "x"', "contains more than keys"), ("[keys", "cannot be read as TOML")]
)
def test_a_file_of_keys_that_holds_something_else_is_left_as_it_is(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_keys(file)
    assert file.read_text() == text


def test_a_file_of_keys_below_a_file_says_why_it_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(ConfigError, match=r"keys\.toml: cannot be read: Not a directory\."):
        read_keys(tmp_path / "home" / "keys.toml")
