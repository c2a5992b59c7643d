# Everything installs itself: a fresh machine needs Python 3.11 or later, pip and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo demo-deploy test test-faults test-deploy check unit docs bench clean
help:             ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

demo: .venv/demo  ## train on the embedded digits and show what the clients brought (about a minute)
	$(BIN)/semifl run digits

demo-deploy: .venv/ready ## a hub, two sites and an operator as processes on loopback (about a minute and a half)
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/deployment/loopback.sh

test: check unit  ## lint, types, import rules and the whole test suite

check: .venv/ready ## lint, formatting, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two processes, a file each, because two cores are what it is meant for; threads that wait must not spin meanwhile.
unit: .venv/ready ## the test suite alone
	GOMP_SPINCOUNT=10000 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-faults: .venv/ready ## kills, damage, full disks, fuzzing and poisoned clients in full (about half an hour)
	SEMIFL_FAULTS=full $(BIN)/python -m pytest tests/faults tests/unit/federation/test_cluster.py tests/unit/learning/test_compiling.py -s

test-deploy: .venv/ready ## hub, sites and engines as real processes: kills, restarts, attacks, Flower (about an hour)
	$(PIP) --editable '.[dev,flare,flower]'
	SEMIFL_DEPLOY=full $(BIN)/python -m pytest tests/deploy tests/unit/deploy --durations=10

docs: .venv/ready ## the documentation as a site, in site/; fails on a broken link
	$(PIP) --editable '.[docs]'
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

bench: .venv/ready ## every benchmark, each against a baseline in the same run (JSON lines)
	for name in round loop augment overhead scale bookkeeping readme_example checkpoint federation cluster tables stack; do GOMP_SPINCOUNT=10000 $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:            ## remove the environment and caches, keep runs
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# What running an experiment needs, and no extra.
# torch first and by its exact version: a looser requirement may bring gigabytes for GPUs that are not there.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "semifl needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	touch $@

# The same environment with every extra that tests and tools need.
.venv/ready: .venv/demo
	$(PIP) --editable '.[dev]'
	touch $@
