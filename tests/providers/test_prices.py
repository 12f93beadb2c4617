"""Costs: cached tokens at their own price, nothing for what runs here, None where nobody knows; never a connection."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from loom.models import Price, Usage
from loom.providers import catalog, prices

MILLION = Usage(input_tokens=1_000_000, output_tokens=1_000)


def test_a_fresh_token_costs_what_the_list_says_and_a_cached_one_a_tenth() -> None:
    claude = catalog.model("anthropic/claude-haiku-4-5")
    fresh = prices.cost(claude, Usage(input_tokens=1_000_000))
    read = prices.cost(claude, Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000))
    written = prices.cost(claude, Usage(input_tokens=1_000_000, cache_write_tokens=1_000_000))
    assert fresh == Decimal(1)
    assert read == Decimal("0.1")
    assert written == Decimal("1.25")


@pytest.mark.parametrize(
    "reference",
    ["anthropic/claude-opus-5", "openai/gpt-5.4", "openai-chat/gpt-5.4", "gemini/gemini-2.5-flash",
     "deepseek/deepseek-flash", "mistral/mistral-medium-latest", "bedrock/us.anthropic.claude-opus-4-6-v1:0"],
)  # fmt: skip
def test_every_service_has_prices(reference: str) -> None:
    found = prices.cost(catalog.model(reference), MILLION)
    assert found is not None
    assert 0 < found < 100


@pytest.mark.parametrize("reference", ["loom/spark", "ollama/llava", "compatible/anything"])
def test_a_model_on_this_machine_costs_nothing(reference: str) -> None:
    assert prices.cost(catalog.model(reference), MILLION) == 0


@pytest.mark.parametrize("reference", ["anthropic/claude-nobody-knows", "ollama/gpt-oss:120b-cloud"])
def test_what_nobody_knows_is_unknown_and_not_nothing(reference: str) -> None:
    assert prices.cost(catalog.model(reference), MILLION) is None


def test_a_server_elsewhere_that_speaks_the_protocol_has_no_known_price() -> None:
    elsewhere = catalog.ModelOverrides(base_url="https://models.example/v1")
    assert prices.cost(catalog.model("compatible/some-model", elsewhere), MILLION) is None


def test_counts_that_contradict_one_another_have_no_price() -> None:
    claude = catalog.model("anthropic/claude-opus-5")
    assert prices.cost(claude, Usage(input_tokens=10, cache_read_tokens=100)) is None


def test_prices_never_open_a_connection_or_start_a_thread() -> None:
    program = """
import sys, threading
def refuse(event, args):
    if event.startswith(("socket.connect", "socket.getaddrinfo", "socket.sendto")):
        raise SystemExit("a connection was tried: " + event)
sys.addaudithook(refuse)
from loom.providers import catalog, prices
assert "genai_prices" not in sys.modules, "it is only loaded when a price is asked for"
from loom.models import Price, Usage
print(prices.cost(catalog.model("openai/gpt-5.4"), Usage(input_tokens=1000)), threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.split()[1] == "1"


def test_a_daemon_loads_the_price_list_in_a_thread() -> None:
    """It takes tenths of a second, in which every other connection would wait."""
    program = """
import asyncio, sys, threading
seen = threading.Event()
class Watch:
    def find_spec(self, name, *_):
        if name == "genai_prices":
            print(threading.current_thread() is threading.main_thread())
            seen.set()
sys.meta_path.insert(0, Watch())
from loom.daemon.app import create_app
from loom.models import Usage
from loom.testing import memory_runtime
async def main():
    async with memory_runtime() as runtime:
        daemon = create_app(runtime).daemon
        await daemon.start()
        await asyncio.to_thread(seen.wait)
        print(runtime.models.cost_by_name("openai/gpt-5.4", Usage(input_tokens=1000)) > 0)
        await daemon.stop()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == ["False", "True"]


def test_a_local_gateway_to_a_paid_service_is_not_free() -> None:
    claude = catalog.model("anthropic/claude-opus-4-5", catalog.ModelOverrides(base_url="http://127.0.0.1:4000"))
    assert not prices.is_free(claude)
    found = prices.cost(claude, Usage(input_tokens=1_000_000))
    assert found is not None
    assert found > 0


def test_a_price_of_the_configuration_wins_over_the_list_and_over_the_address() -> None:
    price = Price(input=2.0, output=8.0, cache_read=0.5)
    own = catalog.model("compatible/mine", catalog.ModelOverrides(price=price))
    usage = Usage(input_tokens=3_000_000, cache_read_tokens=1_000_000, output_tokens=500_000)
    assert prices.cost(own, usage) == Decimal("8.5")
    assert not prices.is_free(own)
    assert prices.is_free(catalog.model("compatible/mine"))
