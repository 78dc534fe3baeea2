# Every target makes .venv when it is missing. A stamp in it says which extras of setup.cfg are installed as that
# file now stands, so a second `make` goes straight to work.
VENV := .venv
PYTHON := $(VENV)/bin/python
WORLD := runs/world

.PHONY: help demo test test-slow test-long test-tpu lint docs clean

help:
	@echo "make demo    train RAG-Sequence, RAG-Token and a closed-book model, evaluate them into $(WORLD)/report.html"
	@echo "make test    run the tests; make test-slow runs whole runs, kills and several processes"
	@echo "make test-long  every property with a thousand examples, and what test-slow runs: an hour, for the night"
	@echo "make test-tpu  what compiles for TPUs, without one; minutes, and libtpu"
	@echo "make lint    run ruff's checks and mypy"
	@echo "make docs    build the documentation into site/index.html"
	@echo "make clean   remove $(VENV), build products and caches (never runs/)"

demo: $(VENV)/installed-base
	$(PYTHON) train.py --config=configs/world.py:variant=sequence --workdir=$(WORLD)/sequence
	$(PYTHON) train.py --config=configs/world.py:variant=token --workdir=$(WORLD)/token
	$(PYTHON) train.py --config=configs/world.py:variant=closed_book --workdir=$(WORLD)/closed_book
	$(PYTHON) eval.py --workdir=$(WORLD)

# Compiling uses one core, so several files are tested at once. A file stays in one process: its tests share compiled
# programs and trained models. Each process takes about 2 GB, hence no more than four.
test: $(VENV)/installed-test,parity
	$(PYTHON) -m pytest -q --numprocesses=logical --maxprocesses=4 --dist=loadfile

# Whole runs over several devices and processes, which would take the tests past a quarter of an hour.
test-slow: $(VENV)/installed-test,parity,notebook,docs
	$(PYTHON) -m pytest -q -m slow --numprocesses=1

# A property is a test that holds for any input; `make test` tries 25 of them, and always the same.
test-long: $(VENV)/installed-test,parity,notebook,docs
	$(PYTHON) -m pytest -q -m "hypothesis or slow" --hypothesis-profile=long --numprocesses=logical --maxprocesses=4 --dist=loadfile

# Not among the others: where libtpu is installed and no TPU is, every process of jax complains of it.
test-tpu: $(VENV)/installed-test,tpu
	$(PYTHON) -m pytest -q tests/tpu tests/fit

lint: $(VENV)/installed-dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

# Stops at the first warning: a dead link, an anchor that is nowhere. The variable spares an advertisement in red.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=true $(PYTHON) -m mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./runs -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# installed-base is the package alone; installed-test,parity and the like add the extras of that name.
$(VENV)/installed-%: setup.cfg pyproject.toml | $(PYTHON)
	@echo "Installing rag-jax ($*) into $(VENV); the first time takes a few minutes."
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.$(if $(filter base,$*),,[$*])'
	@touch $@

# A candidate is run before it is chosen: a version manager's shim can be on the PATH and still have no Python behind it.
$(PYTHON):
	@for python in python3.11 python3; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    $$python -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); \
	    echo "$$python could not make $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; \
	    exit 1; \
	  fi; \
	done; \
	echo "rag-jax needs Python 3.11 or newer, as python3.11 or python3 on the PATH." >&2; \
	exit 1
