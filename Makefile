# Two commands for a newcomer:
#   make demo    three methods on an embedded stream, about two minutes, ends with a report
#   make test    linter, types and tests
# For those who change the code:
#   make check           linter, types, import direction and the fast tests, in under two minutes
#   make test-portable   the fast tests with the instructions of other processors, before a change lands
#   make docs            the documentation site in build/docs, which opens without a server or a network
#   make package         wheel and sdist in dist/, checked
#   make torture         kills commands before every durable call, reads damaged files; about an hour, ends with a table
# Each makes .venv on first use; a second call starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only what is imported is compiled, when it first is, and kept: installing takes half the time.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=
# Test processes share the cores: a thread that waits for another must not spin.
export OMP_WAIT_POLICY ?= passive
TESTFLAGS ?= --durations=20

FAST := not slow and not process and not data
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo check lint test test-portable torture docs package browser

demo: $(VENV)/.installed
	$(BIN)/ocssl demo

test: lint browser
	$(PYTEST) $(TESTFLAGS)

check: lint
	$(PYTEST) -q -m "$(FAST)"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# What a processor rounds, how many threads add it up and in which order tests run must not matter.
test-portable: $(VENV)/.installed-dev
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=2 $(PYTEST) -q -m "$(FAST)" --random-order --random-order-seed=1
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=4 $(PYTEST) -q -m "$(FAST)" --random-order --random-order-seed=2

torture: $(VENV)/.installed-dev
	OCSSL_TORTURE=1 $(BIN)/pytest -n 2 --dist worksteal $(TESTFLAGS) tests/faults tests/cli/test_odd_places.py tests/cli/test_little_memory.py

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/_generate/pictures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open build/docs/index.html"

package: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ocssl needs Python 3.11 or later; $(PYTHON) is older or missing. Name another with: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing ocssl into $(VENV) (once; about a minute) ..."
	$(PIP) -e .
	@touch $@

# timm comes without the torchvision that it asks for: one that does not fit the CPU build of torch breaks transformers.
$(VENV)/.installed-dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing ocssl and its development tools into $(VENV) (once; about two minutes) ..."
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps timm
	@touch $@ $(VENV)/.installed $(VENV)/.installed-docs

$(VENV)/.installed-docs: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing ocssl and what its documentation needs into $(VENV) (once; about two minutes) ..."
	$(PIP) -e ".[docs]"
	@touch $@ $(VENV)/.installed

# The report is tested in a real browser. Debian's is taken where there is none and we may install it. axe-core, which
# looks for what makes the page hard to read for some, comes from npm where that is there.
AXE := axe-core@4.14.0
browser:
	@[ -f node_modules/axe-core/axe.min.js ] || ! command -v npm >/dev/null || \
	  npm install --prefix . --no-save --no-package-lock --no-audit --no-fund --silent $(AXE) >/dev/null 2>&1 || \
	  echo "No axe-core: the tests of accessibility will be skipped. Install it with: npm install --prefix . --no-save $(AXE)"
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && echo "Installing chromium for the browser test ..." && \
	    { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1; } || \
	  echo "No chromium here: the browser test will be skipped. Install it with: apt-get install chromium"
