# Two commands set everything up: `make demo` and `make test`. Needs Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Byte code of the stdlib and our own code is cached even where the machine says not to write it
# beside the sources: imports of torch and dagster take half the time.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.venv/pycache
MESSAGES ?=
TOOLS ?=
HELDOUT ?=
SEED ?= 1
NAME ?= loop
SCHEDULES ?= 40
RESUME ?=
FOLDERS := platform schemas streams lakehouse trainers dsa dagster_defs

.DEFAULT_GOAL := help
.PHONY: help setup demo accept up down test lint unit integration faults packaging bench lock clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## install everything into .venv, from the hash-pinned lock

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $(READY)

demo: $(READY) ## the main job: messages in, a better policy out (MESSAGES= TOOLS= HELDOUT= SEED= SHUFFLE_REWARDS=1 KEEP=1)
	$(BIN)/python -m afterbay.platform.demo

accept: $(READY) ## the demo on 3 seeds and its control, against the promised figures (MESSAGES= TOOLS= HELDOUT=)
	$(BIN)/python -m afterbay.platform.demo.accept

export MESSAGES TOOLS HELDOUT SEED SHUFFLE_REWARDS KEEP

up: $(READY) ## start everything and stay; Ctrl-C stops it
	$(BIN)/afterbay up

down: $(READY) ## stop what `afterbay up --detach` started
	$(BIN)/afterbay down

test: lint unit integration faults packaging ## all checks, as CI runs them

lint: $(READY) ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(FOLDERS) tests examples
	$(BIN)/lint-imports

unit: $(READY) ## tests without a broker
	$(BIN)/pytest -q tests/unit

integration: $(READY) ## tests on a real Kafka that they start themselves
	$(BIN)/pytest -q tests/integration

faults: $(READY) ## kills, freezes, torn files, then random schedules (SCHEDULES=40 SEED=1 RESUME=1)
	$(if $(RESUME),,$(BIN)/pytest -q tests/faults)
	$(BIN)/python -m tests.faults --schedules $(SCHEDULES) --seed $(SEED) $(if $(RESUME),--resume)

packaging: $(READY) ## layout, lock, and one slim install per deployable
	$(BIN)/pytest -q tests/packaging

bench: $(READY) ## one benchmark: table and .afterbay/bench/<NAME>.json (NAME=loop)
	$(BIN)/python -m tests.bench $(NAME)

lock: ## compile requirements.lock anew from pyproject.toml
	$(BIN)/python -m piptools compile -q --all-extras --generate-hashes --allow-unsafe --no-strip-extras \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
	  -o requirements.lock pyproject.toml

clean: ## remove caches and build results, not .afterbay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
