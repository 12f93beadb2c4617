"""One daemon in a process of its own for all tests that only talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from daemon.asking import api_of
from daemon.running import DaemonProcess
from daemon.running import daemon as running


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running(tmp_path_factory.mktemp("house") / "home") as found:
        yield found


@pytest.fixture
def api(house: DaemonProcess) -> Iterator[httpx2.Client]:
    with api_of(house) as client:
        yield client
