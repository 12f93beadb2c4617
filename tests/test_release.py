"""What a release carries: everything locked by hash, a bill of materials, the same bytes each time."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
assert SPEC and SPEC.loader
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


def test_every_dependency_is_locked_with_hashes_and_the_container_uses_them() -> None:
    packages = release.locked_packages((ROOT / "requirements.lock").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [re.split(r"[\[>=<;]", line)[0].strip().lower() for line in project["dependencies"]]
    assert set(wanted) <= packages.keys(), "write it anew: make lock"
    assert all(hashes for _, hashes in packages.values())
    assert "--require-hashes -r /tmp/requirements.lock" in (ROOT / "Dockerfile").read_text()


def test_the_bill_of_materials_names_everything_and_is_the_same_each_time(tmp_path: Path) -> None:
    made: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        subprocess.run([sys.executable, str(ROOT / ".ci" / "release.py"), str(tmp_path / name)], check=True)
        made.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert made[0] == made[1]
    bill = json.loads(made[0]["sbom.cdx.json"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    packages = release.locked_packages((ROOT / "requirements.lock").read_text())
    assert {part["name"] for part in bill["components"]} == packages.keys()
    msgspec = next(part for part in bill["components"] if part["name"] == "msgspec")
    assert msgspec["purl"].startswith("pkg:pypi/msgspec@") and msgspec["hashes"] and "BSD" in str(msgspec["licenses"])
    assert b"msgspec" in made[0]["NOTICES.txt"] and b"Redistribution" in made[0]["NOTICES.txt"]
    assert b"sbom.cdx.json" in made[0]["SHA256SUMS"]
