# Everything happens inside the repository: the environment in .venv, caches in .cache and __pycache__.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
BENCH := .venv-bench
# Libraries that would write to the home directory write here.
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled kernels of this clone; see src/trelliswork/compute/kernel_cache.py.
export TRELLISWORK_CACHE_DIR := $(CURDIR)/.cache
# Byte code of tests and package is kept, even where the environment says otherwise: tests start 8 s sooner.
export PYTHONDONTWRITEBYTECODE :=

# Exact versions, also of what pip installs to build this package (the second name is that of newer versions of pip).
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
# Progress of pip without its warnings: the packages it fetches, one line each.
PIP = $(PINNED) $(BIN)/python -m pip install --no-color --progress-bar off
SHOW = 2>&1 | sed -un -e 's/^Collecting \([^ ]*\).*/  \1/p' -e 's/^Installing collected.*/  installing .../p' -e '/^ *ERROR/p' -e '/error:/p'

.PHONY: help setup setup-bench docs docs-tables docs-pictures docs-serve test test-programs test-all test-wheel checked fuzz lint format demo bench reproduce wheel stranger clean

help: ## list these commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS='	' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: .venv/.ready ## make the environment in .venv, with what tests and lint need

# The package with its core dependencies: all that the demo needs.
.venv/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@echo "Making the environment in .venv ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) -e . $(SHOW)
	@$(BIN)/python -m compileall -q src
	@touch $@

# PyTorch and the tools of the tests. On Linux, pip takes PyTorch's build with CUDA (gigabytes) unless it knows the index
# of the CPU builds, whose address is on PyTorch's page "Get Started": make test PIP_EXTRA_INDEX_URL=ADDRESS
.venv/.ready: .venv/.core
	@echo "Adding PyTorch and the tools of the tests; docs/install.md says how to keep PyTorch small ..."
	@$(PIP) -e '.[dev]' $(SHOW)
	@touch $@

setup-bench: setup $(BENCH)/.ready ## add the peers that benchmarks compare with, in .venv-bench

$(BENCH)/.ready: constraints.txt benchmarks/constraints.txt benchmarks/requirements.txt benchmarks/requirements-nodeps.txt
	@echo "Making the environment of the peers in $(BENCH); this takes some minutes ..."
	@$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install -qq -c constraints.txt -c benchmarks/constraints.txt -r benchmarks/requirements.txt
	$(BENCH)/bin/python -m pip install -qq --no-deps -c constraints.txt -c benchmarks/constraints.txt -r benchmarks/requirements-nodeps.txt
	@touch $@

test: setup ## run the tests (7 minutes on 2 cores and a new clone)
	@echo "Running the tests: about 4 minutes on 2 quiet cores, 7 the first time, when kernels are compiled."
	$(BIN)/python -m pytest -m "not slow and not programs" -n 2 --dist loadfile

test-programs: setup ## run the tests that start programs, and what the pages show (2 minutes)
	$(BIN)/python -m pytest -m "programs and not slow" -n 2 --dist loadfile

test-all: setup .venv/.all ## run all tests, the slow and data-hungry ones and those of pages too
	$(BIN)/python -m pytest -n 2 --dist loadfile

# All extras; and Chromium, for the tests of pages, where we may install it.
.venv/.all: .venv/.ready
	$(PINNED) $(BIN)/python -m pip install -qq -e '.[dev,browser,docs,experiments,integrations]'
	@if (for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do command -v $$name && exit; done; exit 1) > /dev/null; \
	then echo "Chromium is here"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then apt-get update -q && apt-get install -q -y chromium; \
	else echo "No Chromium here: tests of pages will be skipped. Install it with: sudo apt-get install chromium"; fi
	@touch $@

checked: setup ## run the tests with kernels that refuse to leave their arrays (slower)
	TRELLISWORK_CHECKED=1 $(BIN)/python -m pytest -m "not slow and not programs" -n 2 --dist loadfile

fuzz: setup ## N random problems against enumeration, N mutated files and models: make fuzz N=10000 [SEED=1] [ONLY=chain]
	$(BIN)/python -m tests.robustness $(or $(N),10000) --seed $(or $(SEED),0) $(if $(ONLY),--only "$(ONLY)")

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

docs-tables: setup ## make the tables of the documentation from docs/records
	$(BIN)/python docs/site/tables.py

docs-pictures: setup ## draw the pictures of the README
	$(BIN)/python docs/site/pictures.py

docs-serve: setup .venv/.docs ## show the documentation at http://127.0.0.1:8000 and follow changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --strict --dev-addr 127.0.0.1:8000

.venv/.docs: pyproject.toml constraints.txt
	$(PINNED) $(BIN)/python -m pip install -qq -e '.[docs]'
	@touch $@

demo: .venv/.core ## see what it does, on the bundled corpus (2 minutes on a new clone)
	$(BIN)/trelliswork demo

bench: setup-bench ## measure side by side with the peers
	$(BIN)/python -m benchmarks all

reproduce: setup ## run the papers' experiments: make reproduce DATA=folder [OUT=results]
	$(BIN)/python -m experiments all --data $(DATA) --out $(or $(OUT),results)

wheel: setup ## build the wheel in dist
	$(PINNED) $(BIN)/python -m pip wheel -qq --no-deps --wheel-dir dist .
	@ls dist/*.whl

stranger: ## run the README's commands, one after another, in this clone
	$(PYTHON) tests/house/stranger.py

test-wheel: wheel ## install the wheel for each Python on this machine, in an empty environment, and try it
	$(BIN)/python tests/house/wheel.py dist

clean: ## remove everything that was made
	rm -rf .venv .venv-bench .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
