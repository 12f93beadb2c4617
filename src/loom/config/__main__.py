"""`python -m loom.config schema` prints the JSON Schema; `… docs FILE` rewrites the tables of keys in FILE."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from loom.config.reference import config_schema, update_page


def main(arguments: list[str]) -> int:
    match arguments:
        case ["schema"]:
            sys.stdout.write(json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n")
        case ["docs", file]:
            update_page(Path(file))
        case _:
            sys.stderr.write("usage: python -m loom.config schema | docs FILE\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
