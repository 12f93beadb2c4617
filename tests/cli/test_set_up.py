"""Keys, models, configuration, doctor, sweep: what surrounds a conversation."""

from __future__ import annotations

import stat
from pathlib import Path

from cli.loom_command import Loom, Terminal
from cli.model_server import model_server
from loom.testing import sample_pdf

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwx"


def test_a_key_is_stored_for_its_owner_alone_and_never_shown_whole(tmp_path: Path):
    loom = Loom(tmp_path)

    ran = loom("keys", "set", "anthropic", stdin=f"{KEY}\n".encode())
    loom("keys", "set", "openai", stdin=b"sk-other-key-123456\n")

    file = Path(loom("keys", "path").out.strip())
    assert ran.code == 0 and stat.S_IMODE(file.stat().st_mode) == 0o600
    rows = {row["service"]: row for row in loom("keys", "list", "--json").rows}
    assert rows["anthropic"]["key"] == "****uvwx" and rows["gemini"]["key"] is None
    for shown in (ran.out, ran.err, loom("keys", "list").out, loom("config", "show").out, loom("doctor").out):
        assert KEY not in shown and "abcdefgh" not in shown
    assert loom("keys", "remove", "anthropic").code == 0
    assert KEY not in file.read_text() and "sk-other" in file.read_text()
    assert [path.name for path in file.parent.glob(".keys-*")] == []


def test_a_key_is_not_seen_while_it_is_typed(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "keys", "set", "anthropic") as terminal:
        terminal.wait_for("key (hidden)")
        terminal.type(f"{KEY}\n")
        assert terminal.end() == 0

    assert KEY not in terminal.screen and "stored in" in terminal.text


def test_what_is_no_key_or_no_service_is_refused(tmp_path: Path):
    loom = Loom(tmp_path)

    for service, typed in (("anthropic", "\n"), ("anthropic", "two words\n"), ("anthropic", "ключ\n"), ("acme", "x\n")):
        assert loom("keys", "set", service, stdin=typed.encode()).code == 2
    (loom.home / "keys.toml").write_text('model = "x"\n[keys]\n')
    assert "contains more than keys" in loom("keys", "set", "openai", stdin=b"sk-x\n").err
    assert loom("keys", "remove", "openai").code == 2


def test_a_key_opens_all_doors_of_a_service_by_whichever_name_an_error_says(tmp_path: Path):
    loom = Loom(tmp_path)

    assert loom("keys", "set", "openai-responses", stdin=b"sk-1234567890\n").code == 0
    assert loom("keys", "set", "openai-chat", stdin=b"sk-1234567890\n").code == 0
    assert [row["service"] for row in loom("keys", "list", "--json").rows if row["key"]] == ["openai"]


def test_models_tell_what_they_take_and_how_loom_knows(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text(
        '[models.mine]\nprovider = "ollama"\nmodel = "llama3.2"\n[models.mine.capabilities]\nvision = true\n'
    )

    rows = {row["name"]: row for row in loom("models", "--json").rows}
    named = loom("models", "compatible/whatever", "deepseek/deepseek-v4-pro").out.splitlines()

    assert rows["mine"]["capabilities"]["vision"] == {"value": True, "origin": "user"}
    assert rows["anthropic/claude-sonnet-5"]["capabilities"]["native_pdf"] == {"value": True, "origin": "declared"}
    assert "loom keys set anthropic" in rows["anthropic/claude-sonnet-5"]["note"]
    assert rows["loom/spark"]["is_default"] and rows["loom/spark"]["usd_per_million_input_tokens"] == 0
    assert "?" in named[1] and "free" in named[1]
    assert named[2].split()[2] == "-"
    assert loom("models", "nobody").code == 2


def test_a_key_in_the_environment_decides_who_is_asked(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="", LOOM_OFFLINE="1")

    def default(**environ: str) -> str:
        return next(row["name"] for row in loom("models", "--json", **environ).rows if row["is_default"])

    assert default() == "loom/spark"
    assert default(GEMINI_API_KEY="x") == "gemini/gemini-4-argon"
    assert default(GEMINI_API_KEY="x", ANTHROPIC_API_KEY="y") == "anthropic/claude-sonnet-5"
    assert default(ANTHROPIC_API_KEY="y", LOOM_MODEL="ollama/llava") == "ollama/llava"


def test_a_default_that_is_no_model_is_named_and_the_others_are_listed(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text('model = "nope"\n')

    listed = loom("models", "--json")
    named = loom("models", "spark", "nope")
    (found,) = [row for row in loom("doctor", "--json").rows if row["name"] == "model"]

    assert listed.code == named.code == 2 and listed.err == named.err and "Model 'nope' not found" in named.err
    assert "loom/spark" in [row["name"] for row in listed.rows] and "spark" in named.out
    assert not any(row["is_default"] for row in listed.rows)
    assert (
        found["state"] == "problem" and "Model 'nope' not found" in found["text"] and "models default" in found["fix"]
    )
    assert loom("models", "default", "spark").code == 0 and loom("doctor").code == 0
    assert loom("models", "loom/spark", "--json").rows[0]["is_default"]


def test_a_model_answers_only_with_a_key_of_its_service_or_its_own(tmp_path: Path):
    loom = Loom(tmp_path, LOOM_MODEL="")
    (loom.home / "loom.toml").write_text(
        'model = "mine"\n[models.mine]\nprovider = "anthropic"\nmodel = "claude-opus-5"\n'
    )

    def found() -> tuple[str, str]:
        (row,) = [row for row in loom("doctor", "--json").rows if row["name"] == "model"]
        return row["state"], row["text"]

    assert found() == ("open", "mine has no key")
    (loom.home / "loom.toml").write_text(
        'model = "mine"\n[models.mine]\nprovider = "anthropic"\nmodel = "claude-opus-5"\napi_key = "{env:MINE}"\n'
    )
    loom.environ["MINE"] = "sk-ant-own-1234567890"
    assert found() == ("ok", "mine answers")
    assert "no key" not in loom("models", "mine").out


def test_the_doctor_names_the_command_behind_everything_that_is_not_there(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))
    loom("-R", "manual.pdf", "the timeout?")

    ran = loom("doctor", "--json")

    rows = {row["name"]: row for row in ran.rows}
    assert ran.code == 0
    assert {"python", "config", "store", "media", "spark", "pdf", "ocr", "libreoffice", "terminal"} <= set(rows)
    assert "1 session, 3 nodes" in rows["store"]["text"]
    assert all(row["fix"] for row in ran.rows if row["state"] == "open")
    assert loom("doctor").out.startswith("✔ python")


def test_the_doctor_finds_lost_and_damaged_media_and_keys_that_others_can_read(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("manual.pdf", sample_pdf("The timeout is 30 seconds."))
    loom("-R", "manual.pdf", "the timeout?")
    loom("keys", "set", "openai", stdin=b"sk-x-1234567890\n")
    (loom.home / "keys.toml").chmod(0o644)
    (medium,) = [path for path in (loom.home / "media" / "media").rglob("*") if path.is_file()]
    data = medium.read_bytes()

    assert "chmod 600" in loom("doctor").out
    assert "set to 0600" in loom("doctor", "--fix").out
    medium.chmod(0o600)
    medium.write_bytes(data[:-1] + b"X")
    damaged = loom("doctor")
    medium.unlink()
    lost = loom("doctor")

    assert damaged.code == 1 and "✖ media" in damaged.out
    assert lost.code == 0 and "! store" in lost.out and "manual.pdf" in lost.out
    assert loom("-c", "-R", "still there?").code == 0


def test_the_doctor_survives_a_store_that_does_not_open(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.db").write_bytes(b"this is no database" * 100)

    ran = loom("doctor")

    assert ran.code == 1
    assert "✖ store" in ran.out and "✔ pdf" in ran.out
    assert loom("hello").code == 1


def test_a_sweep_tells_what_it_did(tmp_path: Path):
    loom = Loom(tmp_path)

    assert loom("sweep").out == "0 media deleted, 0 bytes freed; 0 kept, 0 bytes\n"
    assert loom("sweep", "--json").rows[0]["deleted"] == []


def test_configuration_that_is_wrong_is_named(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text("[images]\nmax_per_message = -1\n")

    ran = loom("hello")

    assert ran.code == 2
    assert "max_per_message" in ran.err


def test_a_server_that_refuses_is_a_provider_that_refused(tmp_path: Path):
    loom = Loom(tmp_path)

    with model_server(400) as server:
        (loom.home / "loom.toml").write_text(server.config)
        ran = loom("-m", "local", "hello")

    assert ran.code == 4
    assert "not today" in ran.err
