# Each target sets up what it needs: .venv is made on first use, and again when pyproject.toml changes.

VENV := .venv/bin
PROCESSES := --numprocesses auto --maxprocesses 4 --dist loadfile  # of pytest: a file's tests share what they compile
STAMP := .venv/.installed
KOMPUTE_STAMP := .venv-kompute/.installed

.PHONY: demo test test-kompute lint types format wheel clean

demo: $(STAMP)  ## Tell a story; PROMPT="Once upon a time" to continue, MODEL=path for another model
	@$(VENV)/pumice run $(if $(MODEL),"$(MODEL)") -p "$(PROMPT)"

test: $(STAMP)  ## Run every test
	$(VENV)/python -m pytest -q $(PROCESSES)

test-kompute: $(KOMPUTE_STAMP)  ## Run the tests of the Vulkan backend's driver kompute, in .venv-kompute
	.venv-kompute/bin/python -m pytest -q $(PROCESSES) -k "not native" tests/plugins/vulkan

lint: $(STAMP)  ## Check style and formatting
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

types: $(STAMP)  ## Check types, as of the oldest Python that is supported and of the newest
	$(VENV)/mypy
	$(VENV)/mypy --python-version 3.14

format: $(STAMP)  ## Fix what lint can fix
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

wheel: $(STAMP)  ## Build dist/pumice-*.whl
	$(VENV)/python -m hatchling build -t wheel

clean:  ## Remove what the targets above made
	rm -rf .venv .venv-kompute dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml .ci/setup
	@./.ci/setup
	@touch $@

$(KOMPUTE_STAMP): pyproject.toml .ci/setup-kompute tools/build_kompute.sh
	@./.ci/setup-kompute
	@touch $@
