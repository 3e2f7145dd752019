# Every recipe is one line; `make help` lists the targets.
UV := $(or $(shell command -v uv),.uv/bin/uv)
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint format lock clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP) ## Install everything into .venv (Python 3.11 or newer, with hashes)

demo: $(STAMP) ## Run a task over real documents, with a pause for its budget, to a report
	$(BIN)/waystation demo

test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest

check: lint ## Lint, types, layers and tests: what CI runs
	$(BIN)/python -m pytest

lint: $(STAMP) ## Lint, formatting, layers and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-logo && $(BIN)/basedpyright

format: $(STAMP) ## Format the code and mend what can be mended
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lock: $(UV) ## Resolve the dependencies again into requirements.lock
	$(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes --group dev pyproject.toml --output-file requirements.lock

clean: ## Remove the environments and every cache
	rm -rf .venv .uv .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): requirements.lock pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python '>=3.11' .venv && $(UV) pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock && $(UV) pip install --quiet --no-deps --python $(BIN)/python --editable . && touch $@

.uv/bin/uv:
	python3 -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
