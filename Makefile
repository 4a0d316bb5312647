# Everything happens inside the repository: the environment in .venv, caches in .cache and __pycache__.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
BENCH := .venv-bench
# Libraries that would write to the home directory write here.
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled kernels of this clone; see src/trelliswork/compute/jit.py.
export TRELLISWORK_CACHE_DIR := $(CURDIR)/.cache

.PHONY: help setup setup-bench docs docs-serve test test-all lint format demo bench clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS='	' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: .venv/.ready ## make the environment in .venv and compile the kernels

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/trelliswork warmup
	@touch $@

setup-bench: setup $(BENCH)/.ready ## add the peers that benchmarks compare with, in .venv-bench

$(BENCH)/.ready: constraints.txt benchmarks/constraints.txt benchmarks/requirements.txt benchmarks/requirements-nodeps.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install -q -c constraints.txt -c benchmarks/constraints.txt -r benchmarks/requirements.txt
	$(BENCH)/bin/python -m pip install -q --no-deps -c constraints.txt -c benchmarks/constraints.txt -r benchmarks/requirements-nodeps.txt
	@touch $@

test: setup ## run the tests (a few minutes)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-all: setup .venv/.all ## run all tests, the slow and data-hungry ones and those of pages too
	$(BIN)/python -m pytest -n 2 --dist loadfile

# All extras; and Chromium, for the tests of pages, where we may install it.
.venv/.all: .venv/.ready
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,browser,docs,experiments]'
	@if (for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do command -v $$name && exit; done; exit 1) > /dev/null; \
	then echo "Chromium is here"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then apt-get update -q && apt-get install -q -y chromium; \
	else echo "No Chromium here: tests of pages will be skipped. Install it with: sudo apt-get install chromium"; fi
	@touch $@

lint: setup ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup .venv/.docs ## build the documentation site in .cache/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open .cache/site/index.html"

docs-serve: setup .venv/.docs ## show the documentation at http://127.0.0.1:8000 and follow changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --strict --dev-addr 127.0.0.1:8000

.venv/.docs: pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	@touch $@

demo: setup ## see what it does, on the bundled corpus
	$(BIN)/trelliswork demo

bench: setup-bench ## measure side by side with the peers
	$(BIN)/trelliswork bench all

clean: ## remove everything that was made
	rm -rf .venv .venv-bench .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
