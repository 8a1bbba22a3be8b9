# make demo | test | check | format | clean
# Settings: PYTHON (the interpreter, 3.11 or newer), VENV (the environment's folder), CONSTRAINTS
# (the file of pinned versions; `make clean` before changing it).
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
MAKEFLAGS += --no-print-directory

# Empty stamps: a set-up step runs again only when something that it was made from has changed.
MADE := $(VENV)/.made
DEMO := $(VENV)/.installed
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo test check format clean

help:
	@echo "make demo    install into $(VENV) and run the demo"
	@echo "make test    install with the development tools, check, then run the tests"
	@echo "make check   ruff, mypy and the import contracts"
	@echo "make format  let ruff fix and format the code"
	@echo "make clean   remove $(VENV), caches and built files (never runs/)"

demo: $(DEMO)
	@$(BIN)/abc demo

test: check
	@$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@MYPYPATH=tests $(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs \
		--no-check-untyped-defs --disable-error-code annotation-unchecked tests reports
	@$(BIN)/lint-imports --no-logo

format: $(DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf .import_linter_cache .coverage htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints "ok", or one line that says what is missing; expanded only when the recipe runs.
look = $(shell $(PYTHON) -c 'import sys; print("ok" if sys.version_info >= (3, 11) else \
	"found Python %d.%d" % sys.version_info[:2])' 2>/dev/null || echo "found no $(PYTHON)")
look_venv = $(shell $(PYTHON) -c 'import ensurepip, venv; print("ok")' 2>/dev/null)

$(MADE):
	$(if $(filter ok,$(look)),,$(error abc-calib needs Python 3.11 or newer ($(look)): try make PYTHON=python3.11))
	$(if $(filter ok,$(look_venv)),,$(error $(PYTHON) has no venv module: install it (on Debian and Ubuntu, the package python3-venv)))
	@echo "Making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(DEMO): $(MADE) pyproject.toml $(CONSTRAINTS)
	@echo "Installing abc-calib and what it needs into $(VENV) (the first time some minutes without a word: PyTorch is large)"
	@$(PIP) -c $(CONSTRAINTS) -e .
	@touch $@

$(DEV): $(MADE) pyproject.toml $(CONSTRAINTS)
	@echo "Installing abc-calib and its development tools into $(VENV) (the first time some minutes without a word: PyTorch is large)"
	@$(PIP) -c $(CONSTRAINTS) -e '.[dev]'
	@touch $(DEMO) $@
