"""The compose file and the image mean what they say: their settings are settings, and all daemons share one world."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from loom.config import load_config
from loom.daemon.bus import open_bus
from loom.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def composed() -> dict[str, Any]:
    text = re.sub(r"\$\{(\w+)[^}]*\}", r"value-of-\1", (ROOT / "compose.yaml").read_text())
    return yaml.safe_load(text)


def test_every_daemon_of_the_compose_file_has_one_database_one_bucket_one_bus_and_a_password(tmp_path: Path) -> None:
    services = composed()["services"]
    daemons = {name: service for name, service in services.items() if name.startswith("loom-")}
    assert len(daemons) == 2
    for service in daemons.values():
        environ = {**service["environment"], "LOOM_HOME": str(tmp_path)}
        config = load_config(cwd=tmp_path, environ=environ)
        assert config.secret("store", "url") == "postgresql://loom:value-of-POSTGRES_PASSWORD@postgres/loom"
        assert config.secret("media", "url").startswith("s3://loom/media?endpoint=http%3A%2F%2Fminio%3A9000")
        assert config.secret("bus", "url") == "redis://redis:6379/0"
        assert config.secret("server", "password") == "value-of-LOOM_PASSWORD"
        assert (config.server.host, config.server.port) == ("0.0.0.0", 5666)
        assert "localhost" in config.server.allowed_hosts
        assert set(service["depends_on"]) <= set(services)
    assert len({str(service["volumes"]) for service in daemons.values()}) == 2
    upstream = composed()["configs"]["balancer"]["content"]
    assert all(f"server {name}:5666;" in upstream for name in daemons)


def test_the_image_installs_extras_that_exist_and_is_asked_for_its_health_where_it_listens(tmp_path: Path) -> None:
    image = (ROOT / "Dockerfile").read_text()
    settings = re.findall(r"(LOOM_[A-Z_]+)=(\S+)", "".join(re.findall(r"^ENV .*$", image, re.MULTILINE)))
    config = load_config(cwd=tmp_path, environ={**dict(settings), "LOOM_HOME": str(tmp_path)})
    assert config.server.host == "0.0.0.0"
    assert set(re.findall(r"EXPOSE (\d+)|127\.0\.0\.1:(\d+)/healthz", image)) == {("5666", ""), ("", "5666")}
    assert config.server.port == 5666
    (extras,) = re.findall(r"foreach extra,([a-z0-9 ]+),", (ROOT / "Makefile").read_text())
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"postgres", "redis", "s3"} <= set(extras.split()) <= set(offered)
    assert "--require-hashes -r /tmp/requirements.lock" in image
    locked = (ROOT / "requirements.lock").read_text()
    assert all(re.search(rf"^{name}\b", locked, re.MULTILINE) for name in ("psycopg", "redis", "obstore"))


def test_every_image_of_others_is_named_by_its_digest() -> None:
    stages = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    services = [service["image"] for service in composed()["services"].values() if "build" not in service]
    assert len(stages) == 2 and len(services) == 5
    assert [
        name for name in (*stages, *services) if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", name)
    ] == []


@pytest.mark.parametrize("url", ["http://redis:6379/0", "redis://:secret@host:port/0"])
async def test_an_address_of_no_redis_server_is_refused_without_showing_it(tmp_path: Path, url: str) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path), "LOOM_BUS__URL": url})
    with pytest.raises(ConfigError, match=r"bus\.url") as refused:
        open_bus(config)
    assert "secret" not in str(refused.value)
