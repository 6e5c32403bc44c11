# Every verb sets up what it needs: a fresh machine has to have Python 3.11 or newer, and make; demo, test and bench
# also need Java 17 or newer.
#
#   make demo         the main job, end to end on local Spark; leaves a picture, demo.png
#   make test         check, then every test but the long ones
#   make test-quick   the tests without crashes, Spark and long runs
#   make test-long    the long ones
#   make test-spark-4.0   streams, restarts and the reader on another Spark, in an environment of its own; or 4.1, 4.2
#   make sweep        every fault that the tests know, one by one, with the counts; SWEEP="--share 0.02" for a share
#   make simulate     histories of a simulated state directory, counted; HISTORIES=… and SEED=… say which
#   make check        lint, format and types
#   make fmt          rewrite the code in the project's format
#   make bench        measure the engine alone, then pipelines: Penstock and its peers, to bench.json and bench.png
#   make bench-flow   transactions that cause each other, windows, calls: the figures of docs/FLOW.md, in bench-flow/
#   make bench-paper  how batches are scheduled: the papers' figures drawn again, in bench-paper/
#   make docs         the documentation as a site, in site/; a broken link fails
#   make clean        remove the environment, caches and builds
#
# PYTHON=… picks an interpreter, VENV=… another place for the environment, WORKERS=… the test processes.
# All paths are relative, so that the checkout may lie in a directory whose name has spaces.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
WORKERS ?= 2
HISTORIES ?= 3000
SEED ?= 1
BIN := $(VENV)/bin
RUN := "$(BIN)/python" -m
STAMP := $(VENV)/.installed
PLOT := $(VENV)/.plot
PEERS := $(VENV)/.peers
DOCS := $(VENV)/.docs
# Which Spark to install, where it is not to be the newest: pyspark==4.0.*
PYSPARK ?= pyspark
# The short form of the tests on Spark.
SPARK_TESTS := $(patsubst %,tests/spark/test_%.py,check errors flow older_spark reader same_sources stream workers)
TESTS := $(RUN) pytest -n $(WORKERS) --dist loadgroup
CODE := $(wildcard src tests examples benchmarks docs/*.py)

# A version manager may put a python3.13 on the path that does not start, so each one is tried, not only looked up.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	if $$p $(NEW_ENOUGH); then echo $$p; break; fi; done)

# Spark 4 runs on Java 17 or newer: JAVA_HOME's, or else the one on the PATH.
NEED_JAVA = @java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	major=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	if [ "$${major:-0}" -lt 17 ]; then \
	    echo "make $@ runs Spark, which needs Java 17 or newer, and found $${major:-none}; install one (Debian and Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME$(1)" >&2; exit 1; fi

.PHONY: help demo test test-quick test-long test-short-on-spark sweep simulate check fmt bench bench-flow bench-paper docs clean

help:
	@sed -n 's/^#   make /make /p' Makefile

demo: $(PLOT)
	$(call NEED_JAVA)
	"$(BIN)/penstock" demo

test: check
	$(call NEED_JAVA,; without it: make test-quick)
	$(TESTS) -m "not long"

test-quick: $(STAMP)
	PENSTOCK_LAW_EXAMPLES=$${PENSTOCK_LAW_EXAMPLES:-10} $(TESTS) -m "not faults and not spark and not long"

test-long: $(STAMP)
	$(TESTS) -m long

test-spark-%:
	@$(MAKE) test-short-on-spark VENV="$(VENV)-spark-$*" PYSPARK="pyspark==$*.*"

test-short-on-spark: $(STAMP)
	$(call NEED_JAVA)
	$(TESTS) -m "not long" $(SPARK_TESTS)

sweep: $(STAMP)
	"$(BIN)/python" tests/faults/sweep.py $(SWEEP)

simulate: $(STAMP)
	PYTHONPATH=tests $(RUN) simulation --histories $(HISTORIES) --seed $(SEED)

check: $(STAMP)
	$(RUN) ruff check $(CODE)
	$(RUN) ruff format --check $(CODE)
	$(RUN) mypy
	$(RUN) basedpyright --pythonpath "$(BIN)/python"

fmt: $(STAMP)
	$(RUN) ruff check --fix-only $(CODE)
	$(RUN) ruff format $(CODE)

bench: $(PEERS)
	$(call NEED_JAVA)
	"$(BIN)/penstock" bench sl
	"$(BIN)/penstock" bench sl --keys str
	$(RUN) benchmarks.pipeline --install --all --json bench.json --plot bench.png

bench-flow: $(PEERS)
	$(RUN) benchmarks.flow all --install --json bench-flow/flow.json --plot bench-flow

bench-paper: $(PLOT)
	$(RUN) benchmarks.schedulers figures --out bench-paper
	$(RUN) benchmarks.schedulers latency --json bench-paper/latency.json
	$(RUN) benchmarks.schedulers regret --json bench-paper/regret.json

# Not --quiet, under which --strict counts no warnings.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

clean:
	rm -rf "$(VENV)" dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@python='$(PYTHON)'; \
	if [ -z "$$python" ]; then \
	    echo "penstock needs Python 3.11 or newer, and found none on the PATH; install one, or say make PYTHON=/path/to/python" >&2; exit 1; fi; \
	if ! command -v "$$python" >/dev/null 2>&1; then \
	    echo "penstock needs Python 3.11 or newer; PYTHON=$$python is not there" >&2; exit 1; fi; \
	if ! "$$python" $(NEW_ENOUGH); then \
	    echo "penstock needs Python 3.11 or newer; PYTHON=$$python is $$("$$python" --version 2>&1)" >&2; exit 1; fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	    echo "penstock needs Python's venv module, which $$python lacks; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; fi; \
	echo "setting up $(VENV) with $$("$$python" --version 2>&1)"; \
	"$$python" -m venv "$(VENV)"
	@$(RUN) pip --version >/dev/null 2>&1 || "$(BIN)/python" -m ensurepip --upgrade
	$(RUN) pip install --quiet --disable-pip-version-check -e ".[dev,spark]" "$(PYSPARK)"
	@touch "$(STAMP)"

$(PLOT): $(STAMP)
	$(RUN) pip install --quiet --disable-pip-version-check -e ".[spark,plot]"
	@touch "$(PLOT)"

# The clients of the peers; the servers are the distribution's, and a peer whose server is missing is left out.
$(PEERS): $(STAMP) benchmarks/requirements.txt
	$(RUN) pip install --quiet --disable-pip-version-check -e ".[spark,plot]" -r benchmarks/requirements.txt
	@touch "$(PEERS)"

$(DOCS): $(STAMP)
	$(RUN) pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch "$(DOCS)"
