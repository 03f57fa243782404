# `make run` starts a bus, `make test` checks everything; both set themselves up.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
# Asked for another Python than .venv has: set it up anew.
VERSION := import sys; print(sys.version)
ifneq ($(origin PYTHON),file)
ifneq ($(wildcard $(BIN)/python),)
ifneq ($(shell $(PYTHON) -c '$(VERSION)'),$(shell $(BIN)/python -c '$(VERSION)'))
$(shell rm -rf $(VENV))
endif
endif
endif
# Tests wait a lot: more run at once than there are cores.
TESTS_AT_ONCE ?= $(shell echo $$((5 * $$(nproc) / 2)))
# They start very many processes: Python shall keep what it compiled, whatever the host prefers.
test: export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help run test system-packages lint fix bench clean

help:
	@echo "make run    start a bus and its gateway in the foreground (ARGS=\"--loop trio\" …)"
	@echo "make test   format, lint, types and all tests (ARGS=\"-k words\" …)"
	@echo "make bench  measure speed and memory beside the bare relay, NATS and Redis (ARGS=--quick)"
	@echo "make lint   format, lint and types only;  make fix  mend what can be mended"
	@echo "make clean  remove what these commands made"

run: $(VENV)/run.ok
	@exec $(BIN)/busd serve --gateway $(ARGS)

test: lint system-packages
	$(BIN)/python -m pytest -n $(TESTS_AT_ONCE) --maxprocesses 16 --dist worksteal $(ARGS)

# A real service manager for the tests of the units, a real browser for those of web pages; without
# them these tests are skipped, and the summary says why.
system-packages:
	@{ [ -x /lib/systemd/systemd ] && command -v chromium >/dev/null; } || \
		[ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends \
		  systemd iproute2 util-linux chromium >/dev/null; } || true

lint: $(VENV)/test.ok .mypy/busd_plugins
	$(BIN)/ruff format --check --quiet . || { echo "run: make fix"; exit 1; }
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

fix: $(VENV)/test.ok
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

bench: $(VENV)/test.ok
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A source distribution has no links.
.mypy/busd_plugins:
	@mkdir -p .mypy && ln -s ../plugins $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "busd needs Python 3.11 or newer; say which: make PYTHON=python3.12 …"; exit 1; }
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV) 2>$(VENV).log || \
		{ rm -rf $(VENV); [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		  apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); } || \
		{ cat $(VENV).log; echo "install your system's python3-venv package first"; exit 1; }
	@rm -f $(VENV).log

$(VENV)/run.ok: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing busd …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gateway]'
	@touch $@

$(VENV)/test.ok: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing busd and what its tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,bench]'
	@touch $@ $(VENV)/run.ok
