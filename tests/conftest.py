"""For all tests: generated cases are the same in every run. The benchmarks look further."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("seeded", derandomize=True)
settings.load_profile("seeded")
