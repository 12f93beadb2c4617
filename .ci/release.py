"""Write the files of a release that `python -m build` does not make: `python .ci/release.py DIST`.

DIST gets a CycloneDX SBOM of all packages in requirements.lock (`sbom.cdx.json`), their license notices
(`NOTICES.txt`), and checksums of all files (`SHA256SUMS`). The same inputs give the same bytes. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked_packages(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version and the hashes of each package in the text of a lock file."""
    starts = [*_PIN.finditer(text)]
    ends = [*(found.start() for found in starts[1:]), len(text)]
    return {
        found[1].lower(): (found[2], _HASH.findall(text[found.start() : end]))
        for found, end in zip(starts, ends, strict=True)
    }


def license_of(name: str) -> str:
    """Return the license that an installed package declares; empty if the package is not installed."""
    try:
        facts = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if stated := facts.get("License-Expression", ""):
        return stated
    classified = [line.rpartition("::")[2].strip() for line in facts.get_all("Classifier", []) if "License ::" in line]
    return " AND ".join(classified) or (facts.get("License", "") or "").partition("\n")[0][:100]


def license_texts(name: str) -> list[str]:
    """Return the texts of the license files of an installed package."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return []
    wanted = [file for file in files if re.match(r"(LICEN[CS]E|NOTICE|COPYING)", file.name, re.IGNORECASE)]
    found = (Path(str(file.locate())) for file in sorted(wanted, key=str))
    return [path.read_text("utf-8", "replace").strip() for path in found if path.is_file()]


def sbom(version: str, packages: dict[str, tuple[str, list[str]]]) -> dict[str, Any]:
    """Return a CycloneDX document of `packages`."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{pinned}",
            "name": name,
            "version": pinned,
            "purl": f"pkg:pypi/{name}@{pinned}",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes)],
            **({"licenses": [{"license": {"name": license_name}}]} if (license_name := license_of(name)) else {}),
        }
        for name, (pinned, hashes) in sorted(packages.items())
    ]
    own = f"pkg:pypi/loom-runtime@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "loom-runtime",
                "version": version,
                "purl": own,
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def notices(packages: dict[str, tuple[str, list[str]]]) -> str:
    """Return name, version and license texts of each package."""
    parts = [
        "\n".join([f"{name} {version}: {license_of(name) or 'see its source'}", *license_texts(name)])
        for name, (version, _) in sorted(packages.items())
    ]
    return ("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n"


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(exist_ok=True)
    found = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert found
    packages = locked_packages(LOCK.read_text("utf-8"))
    (target / "sbom.cdx.json").write_text(json.dumps(sbom(found[1], packages), indent=1) + "\n", "utf-8")
    (target / "NOTICES.txt").write_text(notices(packages), "utf-8")
    files = sorted(file for file in target.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (target / "SHA256SUMS").write_text("".join(sums), "ascii")


if __name__ == "__main__":
    main()
