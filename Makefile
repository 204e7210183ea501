# Everything a user or a developer needs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501

# Every worker is a process of its own: without compiled modules each start would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

# Parts that run at once would disturb each other's measurements.
.NOTPARALLEL:

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-all check lint types layers docs docs-serve tests e2e test-faults lock sbom audit screenshots clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.run: requirements.txt requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ORTune needs Python 3.11 or newer: make PYTHON=python3.11 run"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what ORTune needs; the first time this takes some minutes (PyTorch brings 5 GB)."
	@$(BIN)/python -m supply.install
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt requirements-dev.lock
	@$(BIN)/python -m supply.install --tools
	@touch $@

setup: $(VENV)/.dev ## Install everything, the tools for development included

run: $(VENV)/.run ## Set up and open the dashboard with a sample model (PORT=8501)
	@$(BIN)/python -m dashboard --port $(PORT)

demo: $(VENV)/.run ## Open recorded results, and measure nothing (PORT=8501)
	@$(BIN)/python -m dashboard --demo --port $(PORT)

test: $(VENV)/.dev check tests ## Set up and pass every check and test

test-all: test ## The same, and the slow tests: models trained and converted anew, torch.compile (a minute more)
	@$(BIN)/pytest -m slow

check: ## Lint, types, import contracts, and the documentation
	@began=$$(date +%s) && $(MAKE) --no-print-directory lint types layers docs && echo "Checked in $$(($$(date +%s) - began)) s."

lint: $(VENV)/.dev ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy --strict on core, dashboard, benchmarks and supply
	@$(BIN)/mypy --num-workers 2
	@MYPYPATH=. $(BIN)/mypy --explicit-package-bases benchmarks supply

layers: $(VENV)/.dev ## import-linter: who may import whom
	@$(BIN)/lint-imports --no-logo

docs: $(VENV)/.dev ## Build the site of docs/ into site/; generated pages and links must be right
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python benchmarks/tables.py --check
	@NO_COLOR=1 $(BIN)/zensical build --strict

docs-serve: $(VENV)/.dev ## Show the site of docs/ while it is written
	@$(BIN)/zensical serve

# Fast tests first; each part prints its time, and the end names the slowest tests of all parts.
PART = $(BIN)/pytest -n 2 -m "not slow" --junitxml=.pytest_cache/$@-

tests: $(VENV)/.dev ## Unit, integration, page and browser tests
	@$(PART)1.xml --dist worksteal tests/unit
	@$(PART)2.xml --dist loadfile tests/integration tests/views
	@$(PART)3.xml --dist worksteal tests/e2e
	@$(BIN)/python -m tests.slowest $(foreach part,1 2 3,.pytest_cache/$@-$(part).xml)

e2e: $(VENV)/.dev ## Browser tests alone
	@$(BIN)/pytest tests/e2e -n 2 --dist worksteal

test-faults: $(VENV)/.dev ## Campaigns of faults: kills, damaged models and stores, full disks, hostile input (12 to 30 minutes)
	@$(BIN)/pytest tests/faults -n 2 --dist loadgroup

lock: $(VENV)/.dev ## Renew both lock files after a change of a range (UPGRADE=--upgrade takes the newest versions)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/uv --upgrade uv==0.13.9
	@PATH="$(CURDIR)/$(VENV)/uv/bin:$$PATH" $(BIN)/python -m supply.lock $(UPGRADE)

sbom: $(VENV)/.run ## Write the bill of materials of what ORTune requires: sbom.json, CycloneDX 1.6
	@$(BIN)/python -m supply.sbom sbom.json

audit: $(VENV)/.dev ## Look up the locked versions in the database of known vulnerabilities
	@$(BIN)/python -m supply.audit

screenshots: $(VENV)/.dev ## Take README's pictures: recorded results, and a film of Live
	@$(BIN)/python docs/screenshots.py

clean: ## Remove the environment and caches; results in the data folder stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
