# make demo      sets up what it needs, estimates an example script, and runs a short version of it on this machine
# make test      sets up what it needs, checks the code, and runs the tests that need no root, no clouds and no frameworks
# make test-all  sets up what it needs, and runs all other tests
# All need python3 (3.11 or newer) with venv or pip, and can be repeated. See docs/contributing.md.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Tests at once in `make test`.
JOBS ?= auto
FRAMEWORKS ?= yes

.PHONY: demo test test-all testbed lint bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.ready-demo
	$(BIN)/costgpu estimate --python $(BIN)/python examples/train.py
	$(BIN)/costgpu run --no-estimate --infra local --python $(BIN)/python --max-duration 10m \
	  examples/train.py --epochs 2 --images 512 --width 16

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
	  -m "not (emulator or wire or frameworks or slow or packaging)" $(PYTEST_ARGS)

test-all: $(VENV)/.ready-test-all testbed
	$(BIN)/python -m tests.lanes $(PYTEST_ARGS)

# As root on Debian or Ubuntu: the packages and the root file system of the emulated cloud's guests (once, about a minute),
# and PostgreSQL for the tests of a team's ledger.
# Elsewhere, or with TESTBED=no, it says why the tests that need them will be skipped.
testbed: $(VENV)/.ready-test-all
	@$(BIN)/python -m tests.emulators.guests.packages
	@$(BIN)/python -m tests.ledger.postgres

lint: $(VENV)/.ready-test
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --no-cache .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.ready-test
	$(BIN)/python -m benchmarks.offers_speed
	$(BIN)/python -m benchmarks.tracer_overhead
	$(BIN)/python -m benchmarks.sync_speed
	$(BIN)/python -m benchmarks.ledger_speed
	$(BIN)/python -m benchmarks.budget_speed
	$(BIN)/python -m benchmarks.termination
	$(BIN)/python -m benchmarks.simulation --seeds 2000
	$(BIN)/python -m benchmarks.simulation --planted

# A venv without ensurepip (Debian without python3-venv) gets its pip from the system's pip.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "costgpu needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 || true)"; \
	  echo "hint: name another one, as in: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null && $(PYTHON) -m venv $(VENV) >/dev/null 2>&1; then :; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; \
	else \
	  rm -rf $(VENV); \
	  echo "This Python has neither ensurepip nor pip, so no packages can be installed."; \
	  echo "hint: apt-get install python3-venv   (or python3-pip), then: make $(MAKECMDGOALS)"; exit 1; \
	fi

$(VENV)/.ready-pip: | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.ready-demo: pyproject.toml $(VENV)/.ready-pip
	@echo "Installing costgpu and the CPU build of PyTorch into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group torch --editable .
	@touch $@

$(VENV)/.ready-test: pyproject.toml $(VENV)/.ready-demo
	@echo "Installing the test tools into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test --group lint
	@touch $@

$(VENV)/.ready-test-all: pyproject.toml $(VENV)/.ready-test
	@echo "Installing the frameworks that scripts are measured with into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group build \
	  $(if $(filter no,$(FRAMEWORKS)),,--group frameworks)
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
