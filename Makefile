# Two commands for a newcomer:
#   make demo    three methods on an embedded stream, about two minutes, ends with a report
#   make test    linter, types and tests
# Each makes .venv on first use; a second call starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only what is imported is compiled, when it first is, and kept: installing takes half the time.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=
TESTFLAGS ?= --durations=15

.PHONY: demo test browser

demo: $(VENV)/.installed
	$(BIN)/ocssl demo

test: $(VENV)/.installed-dev browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(TESTFLAGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ocssl needs Python 3.11 or later; $(PYTHON) is older or missing. Name another with: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing ocssl into $(VENV) (once; about a minute) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing ocssl and its development tools into $(VENV) (once; about two minutes) ..."
	$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.installed

# The report is tested in a real browser. Debian's is taken where there is none and we may install it.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && echo "Installing chromium for the browser test ..." && \
	    { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1; } || \
	  echo "No chromium here: the browser test will be skipped. Install it with: apt-get install chromium"
