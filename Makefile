# make demo    trains a small network on the emulated IPU
# make test    runs the tests
# make bench   measures
# make lint    runs the linter and the type checker
# make docs    builds the documents into a site: build/site/index.html
#
# Each makes what it needs in a virtual environment: Python 3.11 or newer is all that has to be there.
# Variables: VENV=folder of the environment, PYTHON=interpreter to make it with, JOBS=processes that test (2).

VENV ?= .venv
JOBS ?= 2
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
METADATA := setup.cfg pyproject.toml setup.py $(wildcard ipu_tf/device/convolution/native/*.[ch])
FOLDERS := ipu_tf keras_ipu pytest_ipu examples benchmarks tests

# Tests start hundreds of processes: without kept bytecode each would compile these packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test bench lint docs clean

demo: $(VENV)/.installed-examples
	$(BIN)/python examples/digits_cnn.py

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder

bench: $(VENV)/.installed-examples
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed-test
	$(BIN)/python -m ruff check $(FOLDERS)
	$(BIN)/python -m ruff format --check $(FOLDERS)
	$(BIN)/python -m mypy $(FOLDERS)

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "open build/site/index.html"

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A stamp for each set of extras; it is as old as the metadata it was installed from.
$(VENV)/.installed-%: $(METADATA) | $(BIN)/python
	$(PIP) install --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 is needed: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed, and $(PYTHON) is not that: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
