# Every target sets up what is missing first (deploy/setup/setup.sh says what it does); the second time that is nothing.
#
#   make demo ARGS="--events 30000 --json out.json"    the whole line, under fire
#   make up                                            the whole line, quietly, on the usual ports
#   make check                                         ruff, mypy, import contracts, and the tests of the rules
#   make lines                                         the lines of the product: edge, cloud and shared, *.py
#   make test                                          every test that is not slow, beside the checks
#   make busy ARGS="--runs 3 tests/edge"               the same tests beside eight CPU hogs: what fails measures the machine
#   make mutants ARGS="--only window"                  wrong changes of deciding modules: the tests must notice each
#   make chaos                                         power cuts, damaged disks, zombies, bad lines, forged ledgers, all slow tests, long searches
#   make packages ARGS="--arch arm64"                  the Debian packages; make apt-repository, test-packages
#   make faults                                        every test of a fault; writes docs/proofs/faults.md
#   make docs                                              writes docs/reference, docs/pictures, and the dashboards of deploy/grafana
#   make soak ARGS="--minutes 60 --seed 7"             two bridges, two gateways, and every kind of fault for an hour
#   make soak ARGS="--reconnects 1000"                 and nothing piles up; with --ble 500, of Bluetooth devices
ARGS ?=
PYTHON := .venv/bin/python
SIDE_BY_SIDE := $(PYTHON) -m pytest --numprocesses 3 --dist loadfile
unexport PYTHONDONTWRITEBYTECODE  # each of some thousand processes would compile all that it imports

.PHONY: setup setup-tests setup-bench setup-s3 setup-docs demo up test busy mutants chaos faults check lines packages apt-repository test-packages bench soak docs format clean

setup:
	@deploy/setup/setup.sh

setup-tests:
	@deploy/setup/setup.sh tests

setup-bench:
	@deploy/setup/setup.sh bench

setup-s3:
	@deploy/setup/setup.sh s3

setup-docs:
	@deploy/setup/setup.sh docs

demo: setup
	@$(PYTHON) deploy/demo $(ARGS)

up: setup
	@$(PYTHON) deploy/demo --stay $(ARGS)

test: setup-tests
	@$(PYTHON) tests/suite test $(ARGS)

busy: setup-tests
	@$(PYTHON) tests/suite busy $(ARGS)

mutants: setup-tests
	@$(PYTHON) tests/suite mutants $(ARGS)

chaos: setup-tests
	@$(SIDE_BY_SIDE) --chaos $(ARGS)

faults: setup-tests
	@$(SIDE_BY_SIDE) --faults $(ARGS)

check: setup
	@$(PYTHON) tests/suite check $(ARGS)

lines:
	@git ls-files 'edge/*.py' 'cloud/*.py' 'shared/*.py' | xargs cat | wc -l

packages: setup-s3
	@deploy/packages/build.sh $(ARGS)

apt-repository: packages
	@deploy/packages/apt_repository.sh

test-packages: setup-tests
	@deploy/packages/test.sh $(ARGS)

bench: setup-bench
	@$(PYTHON) tests/bench $(ARGS)

soak: setup
	@$(PYTHON) deploy/soak $(ARGS)

docs: setup-docs
	@cd tests && for page in settings_page columns_page metrics_page command_line_page pictures console_pictures; do ../$(PYTHON) -m docs.$$page || exit; done
	@$(PYTHON) deploy/grafana/generate.py

format: setup
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:
	rm -rf .venv .fogline .mypy_cache .ruff_cache .pytest_cache .hypothesis
