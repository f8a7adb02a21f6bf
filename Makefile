# Every target works on a fresh machine with Python 3.11 or later, make and git: what it needs goes into .venv first.
SHELL  := /bin/bash
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 python))
VENV   := .venv
BIN    := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Two pytest workers with one thread each use two cores; with torch's default they would fight over them. A file stays
# with one worker: what its tests share, such as trained runs and a browser, is made once.
WORKERS ?= 2
ONE_THREAD = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Images of containers often set it; without bytecode, every process that a test starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## compare cross-entropy with encouraging loss on handwritten digits
	$(BIN)/encouraging run digits

test: lint  ## lint, types and every test
	PYTHONPATH=tests $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: $(VENV)/.installed-test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove the environment, the site and all caches; runs/ stays
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python found: install Python 3.11 or later."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is too old: Python 3.11 or later is needed (or: make PYTHON=/path/to/python3.11)."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --no-compile -e '.[test]'  # Python compiles what is imported: a small part of what pip would compile
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.installed
