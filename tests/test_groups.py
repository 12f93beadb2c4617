"""Tests that share what they stand on (the built client, a database server) stay together in one worker."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("together")
def test_groups_are_kept_together(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@together")
