# Every target sets up what is missing first (deploy/setup/setup.sh says what it does); the second time that is nothing.
#
#   make demo ARGS="--events 30000 --json out.json"    the whole line, under fire
#   make up                                            the whole line, quietly, on the usual ports
#   make test                                          what has to hold (includes check)
#   make chaos                                         power cuts, damaged disks, zombies, bad lines, forged ledgers
#   make soak ARGS="--minutes 60"                      the demo for long
ARGS ?=
PYTHON := .venv/bin/python

.PHONY: setup setup-tests demo up test chaos check bench soak format clean

setup:
	@deploy/setup/setup.sh

setup-tests:
	@deploy/setup/setup.sh tests

demo: setup
	@$(PYTHON) deploy/demo $(ARGS)

up: setup
	@$(PYTHON) deploy/demo --stay $(ARGS)

test: setup-tests check
	@$(PYTHON) -m pytest --ignore=tests/chaos $(ARGS)

chaos: setup-tests
	@$(PYTHON) -m pytest tests/chaos $(ARGS)

check: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache

bench: setup
	@$(PYTHON) tests/bench $(ARGS)

soak: setup
	@$(PYTHON) deploy/demo --plain $(ARGS)

format: setup
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:
	rm -rf .venv .fogline .mypy_cache .ruff_cache .pytest_cache .hypothesis
