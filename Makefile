# Everything a newcomer types.  `make test` and `make demo` need git, make and python3.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: build
build: $(VENV)/built

# The virtual environment with everything the targets below need.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --group dev
	touch $@

# An editable install; meson-python rebuilds changed native modules on import.
# The directories are prerequisites because meson lists the sources when it configures:
# a new or deleted file changes its directory's time and so installs again.
$(VENV)/built: $(VENV)/ready meson.build critpath/meson.build critpath $(wildcard critpath/*/) $(wildcard critpath/*/*.pyx)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip install --quiet --no-build-isolation --editable .
	touch $@

.PHONY: test
test: build
	$(BIN)/pytest -m "not benchmark"

.PHONY: lint
lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: clean
clean:
	rm -rf $(VENV) build dist
