# Everything runs in .venv, which `make install` makes. `make help` lists the verbs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# TORCH_INDEX=<url of a pip index with CPU builds of torch> avoids the 4.7 GB CUDA build on Linux.
TORCH_INDEX ?=
PIP_FLAGS := --disable-pip-version-check -q -c constraints.txt

.PHONY: help install demo test test-services services-up services-down lint bench bench-kafka format clean
help: ## these lines
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t16

install: $(STAMP) ## make the environment in .venv

$(STAMP): pyproject.toml constraints.txt requirements-faust.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Millstream needs Python 3.11 or later; this is %s. Use make PYTHON=python3.12, say." % sys.version.split()[0])'
	@echo "Making $(VENV). On Linux torch is its CUDA build: about 4.7 GB, a few minutes."
	@echo "(A CPU build is enough: make TORCH_INDEX=<index with CPU builds> install.) Everything else is about 400 MB."
	@$(PYTHON) -m venv $(VENV)
	@if [ -n "$(TORCH_INDEX)" ]; then $(BIN)/pip install $(PIP_FLAGS) --index-url "$(TORCH_INDEX)" torch; fi
	@$(BIN)/pip install $(PIP_FLAGS) -e '.[all,dev]'
	@$(BIN)/pip install --disable-pip-version-check -q --no-deps -r requirements-faust.txt
	@touch $@

demo: install ## the whole loop on the example: no service, no GPU (about 3 minutes)
	@$(BIN)/millstream demo

test: install ## the tests that need no service
	@$(BIN)/pytest -q -n 2 --dist loadgroup -m "not services"

test-services: install ## the tests that start real services: Kafka, a Redis server, an MLflow server
	@$(BIN)/pytest -q -m services

services-up: install ## start Kafka and Redis on free loopback ports; prints the settings to use
	@PYTHONPATH=tests $(BIN)/python -m services up

services-down: install ## end them and remove what they kept
	@PYTHONPATH=tests $(BIN)/python -m services down

lint: install ## ruff, mypy strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: install ## apply the formatter
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install ## what is measured, against whom
	@$(BIN)/python bench/run.py

bench-kafka: install ## workers on Kafka, beside an empty agent and quixstreams
	@PYTHONPATH=tests $(BIN)/python bench/kafka_workers.py

clean: ## remove the environment and everything made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
