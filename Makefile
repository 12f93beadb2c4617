# `make run` starts Loom, `make check` is for each change, `make test` for everything.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More than the number of cores: many tests wait for other programs.
WORKERS ?= 4
# The tests start hundreds of Python processes; with compiled modules each starts twice as fast.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lock release run check check-tests test all-tests test-again coverage lint style types test-types bench docs clean packages
# Tests that take about a minute and need no other program.
FAST := tests/content tests/compile tests/wire tests/agent tests/test_*.py
.DEFAULT_GOAL := run

# Set up and start the daemon with the web client on the built-in model, and print the link.
run: $(VENV)/.run
	@$(BIN)/python web/make.py
	@LOOM_MODEL=$${LOOM_MODEL:-loom/spark} $(BIN)/loom web

# Lint, types and fast tests, without Debian packages. Types are checked while the tests run.
check: style
	@$(MAKE) --no-print-directory -j 2 check-tests types

check-tests: $(VENV)/.test
	LOOM_TEST_PROFILE=quick $(BIN)/python -m pytest -n 2 --dist loadgroup $(FAST)

# Install everything that the tests need, then lint and test. Types are checked while the tests run.
test: packages style
	@$(MAKE) --no-print-directory -j 2 all-tests test-types

all-tests: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup || $(MAKE) --no-print-directory test-again

# Rerun failed tests one at a time. A test that passes only alone depends on load: fix it.
test-again:
	@echo "Some tests failed. Rerunning them one at a time."
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -rA -n 0

lint: style types

style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.test
	$(BIN)/pyright --warnings

test-types: types
	$(BIN)/pyright -p tests --level error

# Coverage of src, subprocesses included. TESTS selects tests: `make coverage TESTS=tests/wire`.
coverage: $(VENV)/.test
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadgroup $(TESTS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --sort=cover | tail -40

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

docs: $(VENV)/.test
	$(BIN)/python -m docs.generate

# Install the programs that the tests use (see tests/README.md).
packages:
	@tests/packages.sh

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Loom needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); tests/packages.sh python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[all]' --group test
	@touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install -q --group bench
	@touch $@

# Pin the versions and hashes that containers and releases install. Needs uv.
lock:
	uv pip compile pyproject.toml $(foreach extra,postgres redis s3 svg heif,--extra $(extra)) --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate -q -o requirements.lock

# sdist and wheel (twice: the bytes must be the same), SBOM, license notices, checksums; all in dist/.
release: $(VENV)/.test
	rm -rf dist dist.again
	$(BIN)/python -m pip install -q build
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) LOOM_WEB=require; \
	    $(BIN)/python -m build -q --outdir dist && $(BIN)/python -m build -q --wheel --outdir dist.again
	cmp dist/*.whl dist.again/*.whl && rm -rf dist.again
	$(BIN)/python .ci/release.py dist

clean:
	rm -rf $(VENV) .cache dist
