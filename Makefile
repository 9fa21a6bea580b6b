# The two commands of README.md. Each sets up what is missing and then does its job.
.PHONY: demo test setup lock bench check

PYTHON := .venv/bin/python

demo:
	@.ci/setup runtime
	@.venv/bin/airlock demo

test:
	@.ci/setup test
	@$(MAKE) --no-print-directory check
	@$(PYTHON) -m pytest -q -n 2 -m "not engine"
	@$(PYTHON) -m pytest -q -m engine

check:
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy

# The peers have a virtual environment of their own: none of them is a dependency.
.venv-bench/.stamp: .ci/requirements-bench.txt
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $<
	@touch $@

bench:
	@.ci/setup test
	@$(MAKE) --no-print-directory .venv-bench/.stamp
	@$(PYTHON) -m tests.benchmarks

# Rewrites the hash-locked requirements from pyproject.toml; needs uv.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --output-file .ci/requirements-runtime.txt pyproject.toml .ci/build-requirements.in
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --extra test \
	  --constraint .ci/requirements-runtime.txt \
	  --output-file .ci/requirements-test.txt pyproject.toml .ci/build-requirements.in
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --output-file .ci/requirements-bench.txt .ci/requirements-bench.in
