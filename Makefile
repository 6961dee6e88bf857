# `make demo` and `make test` each take a fresh machine from nothing to done; everything lives in .venv.

VENV := .venv
BIN := $(VENV)/bin
DEMO_DIR := demo-data
TORTURE_MINUTES ?= 30
MINUTES ?= $(TORTURE_MINUTES)
# What random tests draw from: the same each time, so that a failure comes from the change. SEED= draws anew.
SEED ?= 20261124

# The first of these that is Python 3.11 or later and can make environments.
PYTHONS := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)
FOUND_PYTHON := $(shell for python in $(PYTHONS); do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
# 17 or later, or empty. Version 8 calls itself 1.8.
JAVA := $(shell version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	[ "$${version:-0}" -ge 17 ] && echo "$$version")

# Without Java the Spark parts cannot run, so their half gigabyte is not installed either.
comma := ,
EXTRAS := test$(if $(JAVA),$(comma)spark)
# Clients of Doris that the tests run. Both are a module pydoris, and both name a MySQL driver that has to be
# compiled; so each gets a folder, without what it depends on.
CLIENTS := pydoris==1.2.0 pydoris-client==1.0.4
# Twice as many processes as there are cores: tests wait for brokers, for servers and for intervals, too.
WORKERS ?= $(shell $(FOUND_PYTHON) -c 'import os; print(min((os.cpu_count() or 1) * 2, 8))')
# `make test` has the files of tests in memory where there is room for their 3 GB; `make test-all` has them on disk.
ROOM := $(shell awk '/^MemAvailable/ { print ($$2 > 12e6) }' /proc/meminfo 2>/dev/null)$(shell \
	df -Pk /dev/shm 2>/dev/null | awk 'END { print ($$4 > 6e6) }')
# Each process of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/pytest --numprocesses=$(WORKERS)
LOWEST := $(VENV)-lowest
INSTALLED := $(VENV)/.installed-$(if $(JAVA),with,without)-spark

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-lowest lint style types format docs bench bench-quick bench-spark bench-compare pictures editor torture histories faults mutants clean python java mariadb classes

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) java ## create .venv and install everything in it

demo: setup ## the worked example, then 336,776 flights as late, shuffled, repeated events (2-3 minutes)
	@rm -rf $(DEMO_DIR)
	@$(BIN)/seqstore --data-dir $(DEMO_DIR) demo

# Types and layers take a processor for half a minute: `make lint`, `make test-all` and pre-commit check them.
test: style mariadb classes ## ruff, and every kind of test in its short form
	@echo '== pytest'
	@files=/dev/shm/seqstore-tests-$$$$; trap 'rm -rf "$$files"' EXIT INT TERM; \
	SEQSTORE_SEED=$(SEED) $(PYTEST) $(if $(filter 11,$(ROOM)),--basetemp="$$files")

test-all: lint mariadb classes ## the same with all examples, histories and kills; what .ci/run runs (half an hour)
	@echo '== pytest, full weight'
	@SEQSTORE_SEED=$(SEED) SEQSTORE_TESTS=all $(PYTEST)

# Old versions of other packages call what the newest of their own dependencies deprecate: no errors here.
test-lowest: $(LOWEST)/.installed ## all tests with the lowest versions that pyproject.toml allows
	@echo '== pytest, lowest versions'
	@SEQSTORE_TESTS=all SEQSTORE_SEED=$(SEED) $(LOWEST)/bin/pytest --numprocesses=$(WORKERS) \
		-W default::DeprecationWarning

lint: style types ## ruff, format check, mypy --strict and the layers

style: setup
	@echo '== ruff check'
	@$(BIN)/ruff check
	@echo '== ruff format --check'
	@$(BIN)/ruff format --check

types: setup
	@echo '== mypy --strict'
	@$(BIN)/mypy
	@echo '== import-linter'
	@$(BIN)/lint-imports --no-cache

format: setup ## sort imports and lay out the code
	@$(BIN)/ruff check --fix --select I
	@$(BIN)/ruff format

docs: $(VENV)/.installed-docs ## build the manual in site/; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: setup ## make the pictures of docs/console.md; needs a Chromium
	@$(BIN)/python -m tests.support.console.pictures docs/pictures

editor: ## make the vendored editor of the console from its npm packages; needs npm
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp cli/console/codemirror/* "$$folder" && \
	cd "$$folder" && npm ci --ignore-scripts && node build.mjs "$(CURDIR)/cli/console/static"

bench: $(VENV)/.installed-bench ## measure all workloads beside all peers (40 minutes); killed, it goes on where it was
	@$(BIN)/python -m bench.run $(BENCH)

bench-quick: $(VENV)/.installed-bench ## the same, small, in five minutes
	@$(BIN)/python -m bench.run --quick $(BENCH)

# Each format runs with the Spark that it supports.
bench-spark: $(VENV)/.installed-bench $(foreach spark,4.2.0 4.1.4 3.5.8,$(VENV)-spark-$(spark)/.installed) ## the formats on Spark: Delta, Hudi, Paimon, Iceberg (an hour)
	@$(BIN)/python -m bench.spark --peer delta=$(VENV)-spark-4.2.0/bin/python \
		--peer iceberg=$(VENV)-spark-4.1.4/bin/python $(foreach format,hudi paimon,\
		--peer $(format)=$(VENV)-spark-3.5.8/bin/python) $(BENCH)

bench-compare: setup ## two commits in turns, A=... and B=... (B: this one); exit code 3 when a workload lost a tenth
	@$(BIN)/python -m bench.compare $(A) $(or $(B),HEAD) $(BENCH)

torture: setup ## random work, kills and reopens for TORTURE_MINUTES (default 30)
	@TORTURE_MINUTES=$(TORTURE_MINUTES) $(BIN)/pytest -m torture --timeout=0

histories: setup ## histories of sessions and of clients with kills and stops for MINUTES; totals add up in .histories.json
	@TORTURE_MINUTES=$$(awk 'BEGIN { print $(MINUTES) * 0.5 }') $(BIN)/pytest -m torture --timeout=0 tests/concurrency/test_histories.py -k very_many
	@TORTURE_MINUTES=$$(awk 'BEGIN { print $(MINUTES) * 0.4 }') $(BIN)/pytest -m torture --timeout=0 tests/concurrency/test_client_histories.py -k clients
	@TORTURE_MINUTES=$$(awk 'BEGIN { print $(MINUTES) * 0.1 }') $(BIN)/pytest -m torture --timeout=0 tests/concurrency/test_client_histories.py -k spark
	@$(BIN)/python -m tests.support.replays.history_totals

faults: setup ## the fault grid for TORTURE_MINUTES; the next run goes on with the points that are left in .faults.json
	@TORTURE_MINUTES=$(TORTURE_MINUTES) $(BIN)/pytest -m torture --timeout=0 -s tests/crash/test_file_faults.py

mutants: setup ## one-line faults of MODULES, at most SAMPLE of each, and the tests that notice them (hours)
	@$(BIN)/python -m tests.support.faults.mutants $(if $(SAMPLE),--sample $(SAMPLE)) $(MODULES)

clean: ## remove .venv, caches and what demo and bench left
	@rm -rf $(VENV) $(VENV)-spark-* $(LOWEST) $(DEMO_DIR) bench/work site build dist *.egg-info spark-warehouse metastore_db derby.log
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache .mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml Makefile | python
	@echo "[1/2] $(VENV): $$($(FOUND_PYTHON) --version)"
	@$(FOUND_PYTHON) -m venv $(VENV)
	@echo '[2/2] installing seqstore[$(EXTRAS)] (one to three minutes the first time)'
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@for client in $(CLIENTS); do $(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade \
		--no-deps --target "$(VENV)/clients/$${client%%=*}" "$$client" || exit 1; done
	@touch $@

# Resolved for users alone: packages that only tests need stay at their newest.
$(LOWEST)/.installed: pyproject.toml Makefile $(INSTALLED)
	@echo '[1/2] $(LOWEST): $(shell $(FOUND_PYTHON) --version)'
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@echo '[2/2] installing the lowest versions of what seqstore needs'
	@$(BIN)/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST)/bin/python pyproject.toml \
		--extra server --extra iceberg $(if $(JAVA),--extra spark) --output-file $(LOWEST)/versions.txt
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --constraint $(LOWEST)/versions.txt \
		--editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.installed-docs: $(INSTALLED)
	@echo 'installing seqstore[docs]'
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.installed-bench: $(INSTALLED)
	@echo 'installing the peers: seqstore[bench]'
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[bench]'
	@touch $@

$(VENV)-spark-%/.installed: | python
	@echo 'installing pyspark $* in $(VENV)-spark-$*'
	@$(FOUND_PYTHON) -m venv $(VENV)-spark-$*
	@$(VENV)-spark-$*/bin/python -m pip install --disable-pip-version-check --quiet pyspark==$*
	@touch $@

python:
	@[ -n '$(FOUND_PYTHON)' ] || { echo 'Python 3.11 or later (with venv) was not found. Install it, e.g. apt-get install python3 python3-venv, or: make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }

java:
	@[ -n '$(JAVA)' ] || echo 'Spark parts: skipped, Java 17 or later was not found. To run them too: apt-get install openjdk-17-jre-headless (or set JAVA_HOME).'

mariadb:
	@command -v mariadb >/dev/null || command -v mysql >/dev/null || echo 'Three tests with the mariadb command: skipped, it was not found. To run them too: apt-get install mariadb-client.'

classes: setup
	@$(BIN)/python -m tests.support.spark.class_archive
