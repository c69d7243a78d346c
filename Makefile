# Everything runs in .venv, which these commands make themselves. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# `make test TESTS=` runs the slow tests too; `make test TESTS=tests/pretraining` one folder.
TESTS ?= -m "not slow"

.DEFAULT_GOAL := help
.PHONY: help demo test gpu lowest lint format docs bench conformance clean

help:  ## List the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 22

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## Run the whole pipeline in minutes on this machine, without a download
	$(BIN)/mybert demo --output_dir demo_output --overwrite

test: $(INSTALLED)  ## Run the tests (TESTS= for all of them, the slow ones included)
	$(BIN)/python -m pytest -n auto $(TESTS)

gpu: $(INSTALLED)  ## With a GPU: run the tests that need one, then the benchmarks; both are in gpu_report.md
	@rm -f gpu_tests.xml
	-$(BIN)/python -m pytest tests/gpu -k cuda --junitxml=gpu_tests.xml
	$(BIN)/python -m mybert.benchmarks.gpu_report --tests gpu_tests.xml --output gpu_report.md

lowest: $(INSTALLED)  ## Run the quick tests with the lowest versions that pyproject.toml allows
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tests/lowest_versions.py

lint: $(INSTALLED)  ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p .typecheck && ln -sfn .. .typecheck/mybert
	MYPYPATH=.typecheck $(BIN)/mypy --package mybert
	MYPYPATH=.typecheck $(BIN)/mypy examples

format: $(INSTALLED)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## Build all pages as a site with search, .site/html/index.html; a broken link is an error
	$(BIN)/python docs/build_site.py
	@echo "Search needs a server: $(BIN)/python -m http.server --directory .site/html"

bench: $(INSTALLED) demo_output/report.json  ## Run the benchmarks on the demo's text; each prints its table
	$(BIN)/python -m mybert.benchmarks.tokenization_speed train demo_output/text
	$(BIN)/python -m mybert.benchmarks.tokenization_speed encode demo_output/text --vocab demo_output/pretrained/vocab.txt
	$(BIN)/python -m mybert.benchmarks.conversion_speed
	$(BIN)/python -m mybert.benchmarks.model_speed --workloads sentences skewed dense query windows training memory

demo_output/report.json: | $(INSTALLED)
	$(BIN)/mybert demo --output_dir demo_output

conformance: $(INSTALLED)  ## Run transformers' own model tests on our classes (downloads its source)
	$(BIN)/python tests/conformance/transformers_common.py -- -n auto

clean:  ## Remove what these commands made
	rm -rf $(VENV) .lowest .typecheck build dist *.egg-info demo_output .pytest_cache .mypy_cache .ruff_cache .conformance .site
