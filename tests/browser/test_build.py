"""The built client: its size, its types, its tests, and how it gets into the package."""

from __future__ import annotations

import gzip
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.client import OpenClient

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "src/loom/daemon/web"
KB = 1000


def eager(built: Path, suffix: str) -> list[Path]:
    """The files of a kind that the page asks for at once."""
    html = (built / "index.html").read_text()
    return [built / "assets" / name for name in re.findall(rf'/assets/([\w.-]+\.{suffix})"', html)]


def gzipped(files: list[Path]) -> int:
    return sum(len(gzip.compress(file.read_bytes(), 9)) for file in files)


def test_the_first_load_is_small(built: Path) -> None:
    assert gzipped(eager(built, "js")) <= 60 * KB
    assert gzipped(eager(built, "css")) <= 12 * KB


def test_a_first_load_is_small_and_other_parts_load_when_needed(
    open_client: OpenClient,
) -> None:
    client = open_client()
    scripts = {url.rpartition("/")[2] for url in client.requests if url.endswith(".js")}
    assert not any(name.startswith(("deferred", "math", "highlight")) for name in scripts)
    client.send_and_wait("!echo hello")
    talking = open_client(path=f"/#/s/{client.session}")
    expect(talking.answers).to_have_count(1)
    for page in (open_client(), talking):
        fetched = [BUILT / "assets" / url.rpartition("/")[2] for url in page.requests if url.endswith(".js")]
        assert len(fetched) == len(set(fetched)) > 2
        assert gzipped(fetched) <= 60 * KB
    with talking.page.expect_response(re.compile(r"/assets/deferred-\w+\.js$")) as wanted:
        talking.page.get_by_role("button", name="Context", exact=True).click()
    assert wanted.value.headers["cache-control"] == "public, max-age=31536000, immutable"
    expect(talking.page.get_by_role("complementary", name="Context inspector")).to_contain_text("tokens")
    assert talking.foreign == []


def test_everything_that_an_eager_file_imports_is_eager_too(built: Path) -> None:
    names = {file.name for file in eager(built, "js")}
    for file in eager(built, "js"):
        static = set(re.findall(r'from"\./([\w.-]+\.js)"|import"\./([\w.-]+\.js)"', file.read_text()))
        assert {one or other for one, other in static} <= names


def test_the_licenses_of_what_is_bundled_come_along(built: Path) -> None:
    text = (built / "licences.txt").read_text()
    for name in ("preact", "marked", "socket.io-client", "d3-hierarchy", "highlight.js"):
        assert re.search(rf"^{re.escape(name)} \d", text, re.MULTILINE)


def test_the_same_sources_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Built in another folder: other tests use the files of this one."""
    web = tmp_path / "web"
    shutil.copytree(ROOT / "web", web, symlinks=True, ignore=shutil.ignore_patterns(".make.lock"))
    again = runpy.run_path(str(web / "make.py"))

    assert again["make"]()

    files = {file.relative_to(built): file.read_bytes() for file in built.rglob("*") if file.is_file()}
    other: Path = again["BUILT"]
    assert {file.relative_to(other): file.read_bytes() for file in other.rglob("*") if file.is_file()} == files


def test_the_types_are_those_that_the_daemon_describes() -> None:
    subprocess.run([sys.executable, ROOT / "web/generate_types.py", "--check"], check=True)


@pytest.mark.parametrize("script", ["check", "test"])
def test_the_sources_are_typed_and_their_own_tests_pass(built: Path, script: str) -> None:
    done = subprocess.run(["npm", "run", script], cwd=ROOT / "web", check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_node_the_package_is_built_all_the_same_unless_the_client_is_required(tmp_path: Path) -> None:
    for name in ("make.py", "src/main.tsx", "package-lock.json"):
        target = tmp_path / "web" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / "web" / name).read_bytes())
    (tmp_path / "src/loom/daemon").mkdir(parents=True)
    code = "import runpy; runpy.run_path('web/make.py')['make_for_package']()"

    def packaged(**wishes: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PATH": str(tmp_path), **wishes}
        return subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environ, check=False, capture_output=True, text=True
        )

    left_out = packaged()
    assert left_out.returncode == 0
    assert "needs Node.js" in left_out.stderr
    assert packaged(LOOM_WEB="require").returncode != 0
    assert packaged(LOOM_WEB="skip").stderr == ""


def test_the_wheel_carries_the_built_client(built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, "LOOM_WEB": "require"})
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "loom/daemon/web/index.html" in names
    assert {f"loom/daemon/web/assets/{file.name}" for file in (built / "assets").iterdir()} <= set(names)
    assert not any("node_modules" in name or name.startswith("web/") for name in names)
