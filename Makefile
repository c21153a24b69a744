# Two commands set up a fresh machine: `make live` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := test
unexport PYTHONDONTWRITEBYTECODE  # else each of the many programs that tests start compiles all that it imports
.PHONY: live test test-all real check others bench kernels clean

# built by the installation of the checkout; anew when it changes
COMPILED := $(wildcard capture/loaders/_scan/*.[ch] engines/processor/*.[ch])

$(VENV)/.ok-live: pyproject.toml hatch_build.py $(COMPILED)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch~=2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[live]"
	@touch $@

$(VENV)/.ok-dev: $(VENV)/.ok-live
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

live: $(VENV)/.ok-live  ## watch the bundled engine decode
	$(BIN)/tracetui live --model gemma-3-1b

check: $(VENV)/.ok-dev  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## what to run at each change, some five minutes
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "not slow and not table"

test-all: check  ## also terminals, kills, packaging, long fuzz: what CI runs
	.ci/tests $(BIN)/python

real: $(VENV)/.ok-dev  ## claims about other programs, tried on them; ENVIRONMENTS: see tests/real/__init__.py
	TRACETUI_REAL=$(ENVIRONMENTS) $(BIN)/python -m pytest -rs tests/real

others:  ## the tests that need no torch, on every later Python that is here
	.ci/others

bench: $(VENV)/.ok-dev  ## every promised figure beside its peer, pass or fail
	$(BIN)/python -m tests.bench

kernels: $(VENV)/.ok-dev  ## registers, spills, load widths and waits of every kernel on nine GPUs
	$(BIN)/python -m engines.kernels.compile

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
