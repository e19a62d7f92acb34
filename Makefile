# Only Python >= 3.11 is assumed. `make` alone prints what there is.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster test check bench bench-cluster manifests lock

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the lock (instant when nothing changed)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed, $(PYTHON) is `$(PYTHON) --version 2>&1`; try: make PYTHON=python3.12 setup" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## a night of a simulated fleet, embedded broker included
	$(BIN)/rebalancer demo

cluster: setup ## a real control plane with a fleet of fake GPU nodes, for kubectl and rebalancer run; until Ctrl-C
	$(BIN)/python -m tests.servers.cluster

test: setup ## all tests; fetches and starts the real Kafka that they need
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup ## what CI checks before the tests: style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## the figures of the design into build/bench.json
	@mkdir -p build
	$(BIN)/python -m tests.bench --out build/bench.json

bench-cluster: setup ## the figures at a real control plane, beside rivals, into build/bench-cluster.json
	$(BIN)/python -m tests.bench.cluster --out build/bench-cluster.json

manifests: setup ## write the plain manifests and the chart's generated files anew
	$(BIN)/python -m tests.deploy.manifests

lock: setup ## resolve requirements.lock anew from pyproject.toml
	$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --no-header --upgrade pyproject.toml -o requirements.lock
	echo 'hatchling>=1.27' | $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header -c requirements.lock - -o deploy/build.lock
	$(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header -c requirements.lock pyproject.toml -o deploy/runtime.lock
