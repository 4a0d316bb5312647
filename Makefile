# Everything happens inside the repository: the environment in .venv, caches in .cache and __pycache__.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
BENCH := .venv-bench
# Libraries that would write to the home directory write here.
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup setup-bench test test-all lint format demo bench clean clean-kernels

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

test-all: setup ## run all tests, the slow and data-hungry ones too
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## see what it does, on the bundled corpus
	$(BIN)/trelliswork demo

bench: setup-bench ## measure side by side with the peers
	$(BIN)/trelliswork bench all

clean-kernels: ## forget compiled kernels (after editing inference/simd.py)
	find src tests -name '*.nbi' -delete -o -name '*.nbc' -delete

clean: ## remove everything that was made
	rm -rf .venv .venv-bench .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
