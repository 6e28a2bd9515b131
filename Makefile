# Everything starts here: `make run` does the main job end to end, `make test` checks everything.
# Both set up what they need first, and say what they do.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers .venv-litellm
# Tests wait more than they work.
WORKERS ?= $(shell [ $$(nproc) -gt 2 ] && echo 4 || echo 3)

.PHONY: help setup setup-test setup-bench console run wheel check test unit lint check-console screens format bench requirements docs screenshots types clean

help: ## Show what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what running needs (system packages, Python packages)
	@PYTHON=$(PYTHON) scripts/setup run
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "Done. Now run: $(BIN)/paddock serve")

setup-test: ## Install what the tests need as well
	@PYTHON=$(PYTHON) scripts/setup test

setup-bench: ## Install what the benchmarks compare with (Docker's engine, nginx, LiteLLM, websockify) as well
	@PYTHON=$(PYTHON) scripts/setup bench

console: ## Build the web console, if its sources have changed
	@PYTHON=$(PYTHON) scripts/setup console

run: setup ## Do the main job end to end: a fenced computer, work done in it, the result brought back
	@$(BIN)/python scripts/demo.py

wheel: setup console ## Build an installable wheel, console included, into dist/
	rm -f dist/paddock-*.whl
	$(BIN)/python -m hatchling build --target wheel --directory dist

check: setup-test ## Run lint, types and unit tests, those of the console too (under 4 minutes)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --old-file=setup-test lint check-console unit

unit: setup-test
	$(BIN)/python -m pytest -n 2 -q --cache-clear tests/unit || $(BIN)/python -m tests.again $$?

test: setup-test ## Run every check and every test
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --old-file=setup-test lint check-console screens
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cache-clear --durations 30 \
		|| $(BIN)/python -m tests.again $$?

lint: setup-test ## Check style, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check-console: setup-test ## Check and test the console's own code
	@PYTHON=$(PYTHON) scripts/setup npm --prefix web run check

screens: setup-test ## Build the images with a screen, which the tests need
	$(BIN)/python -m tests.screens

format: ## Put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup-bench ## Measure against a peer or a limit in the same run
	failed=0; for each in sandbox llm runs screens chat; do $(BIN)/python bench/$$each.py || failed=1; done; exit $$failed

docs: ## Write the generated pages of docs/reference anew
	$(BIN)/python -m paddock.config.reference > docs/reference/configuration.md
	$(BIN)/python -m paddock.cli.reference > docs/reference/cli.md
	$(BIN)/python -m paddock.runs.reference > docs/reference/task-file.md
	$(BIN)/python -m paddock.runs.schema > docs/reference/task.schema.json
	$(BIN)/python -m paddock.fleet.tool_reference > docs/reference/tools.md
	$(BIN)/python -m paddock.model.session_schema > docs/reference/session-events.schema.json
	$(BIN)/python -m paddock.model.session_schema --types > docs/reference/session-events.ts
	cp docs/reference/session-events.ts web/src/api/session-events.ts

screenshots: setup-test ## Take pictures of every page of the console, in light, dark and Chinese
	$(BIN)/python -m tests.e2e.shots

types: ## Write the console's types of the API anew
	@PYTHON=$(PYTHON) scripts/setup npm --prefix web run types

requirements: ## Pin every dependency anew, with hashes
	scripts/pin

clean: ## Remove what set-up made here (not ~/.paddock)
	rm -rf $(VENV) $(PEERS) .make dist web/node_modules src/paddock/console/static .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
