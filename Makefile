# `make run` runs a sample task end to end; `make test` runs every check. Both install their requirements first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers .venv-mcp-sqlite .venv-litellm .venv-fastmcp .venv-contextforge
# Tests mostly wait, so use more workers than cores.
WORKERS ?= $(shell [ $$(nproc) -gt 2 ] && echo 4 || echo 3)

.PHONY: help setup setup-test setup-bench console run wheel check test unit lint check-console screens format bench requirements docs screenshots types clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the requirements of the server (system and Python packages)
	@PYTHON=$(PYTHON) scripts/setup run
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "Done. Now run: $(BIN)/paddock serve")

setup-test: ## Also install the requirements of the tests
	@PYTHON=$(PYTHON) scripts/setup test

setup-bench: ## Also install the peers of the benchmarks (Docker, nginx, LiteLLM, FastMCP, ContextForge, websockify)
	@PYTHON=$(PYTHON) scripts/setup bench

console: ## Build the web console if its sources changed
	@PYTHON=$(PYTHON) scripts/setup console

run: setup ## Run a sample task end to end: sandbox, agent, deliverable
	@$(BIN)/python scripts/demo.py

wheel: setup console ## Build an installable wheel, console included, into dist/
	rm -f dist/paddock-*.whl
	$(BIN)/python -m hatchling build --target wheel --directory dist

check: setup-test ## Run lint, types and unit tests, also of the console (under 4 minutes)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --old-file=setup-test lint check-console unit

unit: setup-test
	$(BIN)/python -m pytest -n 2 -q --cache-clear tests/unit tests/docs/test_chinese_pages.py || $(BIN)/python -m tests.support.retry_failed $$?

test: setup-test ## Run every check and every test
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --old-file=setup-test lint check-console screens
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cache-clear --durations 30 \
		|| $(BIN)/python -m tests.support.retry_failed $$?

lint: setup-test ## Check style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check-console: setup-test ## Check and test the console's code
	@PYTHON=$(PYTHON) scripts/setup npm --prefix web run check

screens: setup-test ## Build the images with a screen for the tests
	$(BIN)/python -m tests.support.screen_images

format: ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup-bench ## Run the benchmarks against peers or limits measured in the same run
	failed=0; for each in sandbox network llm mcp_gateway runs screens chat; do $(BIN)/python bench/$$each.py || failed=1; done; exit $$failed

docs: ## Regenerate the generated pages of docs/reference
	$(BIN)/python -m paddock.config.reference > docs/reference/configuration.md
	$(BIN)/python -m paddock.cli.reference > docs/reference/cli.md
	$(BIN)/python -m paddock.runs.tasks.task_reference > docs/reference/task-file.md
	$(BIN)/python -m paddock.runs.tasks.task_schema > docs/reference/task.schema.json
	$(BIN)/python -m paddock.fleet.tool_reference > docs/reference/tools.md
	$(BIN)/python -m paddock.model.session_schema > docs/reference/session-events.schema.json
	$(BIN)/python -m paddock.model.session_schema --types > docs/reference/session-events.ts
	cp docs/reference/session-events.ts web/src/api/session-events.ts

screenshots: setup-test ## Take pictures of every page of the console, in light, dark and Chinese
	$(BIN)/python -m tests.e2e.console.screenshots

types: ## Regenerate the console's API types
	@PYTHON=$(PYTHON) scripts/setup npm --prefix web run types

requirements: ## Pin all dependencies with hashes
	scripts/pin

clean: ## Remove build and test artefacts (not ~/.paddock)
	rm -rf $(VENV) $(PEERS) .make dist web/node_modules src/paddock/console/static .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
