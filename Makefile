# Everything a newcomer types.  Each target sets up what it needs: a machine with git,
# make and python3 has to have nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(abspath $(VENV))/bin
INSTALLED = $(abspath $(VENV))/installed
# The tools that Meson and Ninja start stand there.
export PATH := $(BIN):$(PATH)
# Compiling every module anew costs each suite some twenty seconds.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: locks sbom evaluation-night evaluation-overhead evaluation-healthy evaluation-weather check-evaluation ab-tables help demo test test-pure test-process test-kernel test-guest test-guest-short test-all test-deep test-versions nightly fuzz mutations mutants wheels bench bench-all evaluation evaluation-services evaluation-requests evaluation-hosts evaluation-smco lint build installed docs site screenshots tutorial clean python packages packages-test packages-guest packages-fuzz packages-wheels

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## find a fault, recorded here where that is possible; writes critpath-demo/report.html
	@$(MAKE) --no-print-directory --jobs 2 $(INSTALLED)/built
	$(INSTALLED)/bin/critpath demo critpath-demo

# PYTEST_OPTIONS= gives one process, and whatever else pytest is to be called with.
PYTEST_OPTIONS ?= -n 2 --dist loadgroup
PYTEST = PATH=$(INSTALLED)/bin:$$PATH $(INSTALLED)/bin/python -P -m pytest

test: installed packages-test ## the tests of pure Python and of own processes; needs no root
	$(PYTEST) $(PYTEST_OPTIONS) -m "not deep" tests/pure tests/process

test-pure: installed packages-test ## those that start no process: the first half of make test
	$(PYTEST) $(PYTEST_OPTIONS) -m "not deep" tests/pure

test-process: installed packages-test ## those that start processes: the second half
	$(PYTEST) $(PYTEST_OPTIONS) -m "not deep" tests/process

test-kernel: installed packages-test ## recording with this kernel's tracer; skipped without root
	$(PYTEST) $(PYTEST_OPTIONS) tests/kernel

test-guest: installed packages-guest ## LTTng's kernel tracer, in an emulated guest (20 minutes)
	$(PYTEST) tests/guest

test-guest-short: installed packages-guest ## one recording, a budget, read back
	$(PYTEST) tests/guest/test_short.py

test-all: test test-kernel test-guest ## every test but the deep ones

test-deep: installed packages-test ## fresh seeds, 400 examples for 25, every size
	$(PYTEST) $(PYTEST_OPTIONS) -m "deep or hypothesis" --hypothesis-profile deep tests/pure tests/process

VERSIONS_TESTS ?= tests/pure
test-versions: installed ## the pure tests, with the oldest and the newest Python and libraries
	@sh .ci/versions $(VENV)/versions $(BIN)/python $(VENV)/wheel $(VERSIONS_TESTS)

# One report, critpath-nightly/report.txt: a line for each suite.  NIGHTLY names some of them.
NIGHTLY ?=
nightly: ## what takes hours: fresh seeds, the whole guest, fuzzing, changed code; writes a report
	@bash .ci/nightly critpath-nightly $(NIGHTLY)

# Debian's releases whose Python tests a wheel beside those that are here, and processors.
ELSEWHERE ?= bookworm-aarch64 sid-x86_64
ELSEWHERE_TESTS ?=
wheels: $(VENV)/tools packages-wheels ## dist/: the source distribution, and a wheel for each processor, tested
	$(BIN)/pip install --quiet --require-hashes --requirement .ci/locks/wheel.txt
	@sh .ci/wheels dist $(BIN)/python
	@for place in $(ELSEWHERE); do \
	  sh .ci/elsewhere $(VENV)/elsewhere $(BIN)/python $(CURDIR)/dist "$${place%-*}" "$${place##*-}" $(ELSEWHERE_TESTS) || exit 1; \
	done

sbom: $(VENV)/libraries ## dist/critpath.cdx.json (CycloneDX): what the wheel of dist/ with every extra consists of
	$(BIN)/pip install --quiet --require-hashes --requirement .ci/locks/sbom.txt
	rm -rf $(VENV)/released
	$(PYTHON) -m venv --without-pip $(VENV)/released
	$(BIN)/pip --python $(VENV)/released/bin/python install --quiet --no-compile \
	  --requirement $(VENV)/requirements dist/critpath_core-*_$$(uname -m).whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/critpath.cdx.json $(VENV)/released/bin/python

# With every file's digest: what is built with cannot be exchanged on the way (dependabot renews them).
locks: $(VENV)/tools ## .ci/locks: the versions of what builds, with digests
	$(BIN)/pip install --quiet "uv>=0.8"
	for group in build wheel sbom; do \
	  $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make locks" --group $$group --output-file .ci/locks/$$group.txt || exit 1; \
	done

# An hour for each target; FUZZ_TARGETS names some of metadata, streams, saved, sockets, stacks, foreign.
FUZZ_SECONDS ?= 3600
FUZZ_JOBS ?= 1
FUZZ_TARGETS ?=
fuzz: build packages-fuzz ## coverage-guided fuzzing with sanitizers, FUZZ_SECONDS a target
	@if echo 'int main(void) { return 0; }' | clang -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null; then \
	  $(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --jobs $(FUZZ_JOBS) $(FUZZ_TARGETS) && \
	  $(BIN)/python tests/fuzz/run.py --table; \
	else echo "make fuzz: left out: no clang with sanitizers"; fi

# Repeat one with --campaign and --only; an interrupted one goes on where it was.  Its hours
# of work are in critpath-mutations/, which `make clean` leaves.
mutations: build ## 1,000,000 changed traces, 50,000 files of all formats: no crash, no hang (hours)
	@mkdir -p critpath-mutations
	$(BIN)/python tests/fuzz/mutate.py --inputs 1000000 --campaign 1 \
	  --state critpath-mutations/mutations.state --json critpath-mutations/mutations.json
	$(BIN)/python tests/fuzz/mutate_files.py --json critpath-mutations/files.json

mutants: installed packages-test ## 300 changed lines of what judges: how many the pure tests notice
	$(BIN)/pip install --quiet --group mutants
	$(INSTALLED)/bin/python -P evaluation/mutants.py

# Shows what an experiment prints, and keeps it in evaluation/results as JSON.
EVALUATE = PATH=$(INSTALLED)/bin:$$PATH $(INSTALLED)/bin/python evaluation/results.py

# BUSY=2: beside two busy loops.  FULL=1: 100 M events, and a million runs against a million, too.
bench: installed packages-test ## speed as ratios against peers measured beside, in one table (20 minutes)
	$(EVALUATE) $(if $(BUSY),--busy $(BUSY)) evaluation/benchmarks/scale.py $(if $(FULL),--full)

bench-all: installed packages-test ## every benchmark, of quality too (hours)
	@for script in $$(grep -ls '^if __name__' evaluation/benchmarks/*.py); do \
	  case $$script in *_work.py|*/large_trace.py) continue;; esac; \
	  echo "== $$script"; $(EVALUATE) $(if $(BUSY),--busy $(BUSY)) "$$script" || exit 1; \
	done

check-evaluation: installed packages-test ## that every experiment starts and ends, on a tiny input (3 minutes)
	$(INSTALLED)/bin/python evaluation/check_starts.py

STUDIES = evaluation/results/case_studies
# `faults.py --resume` goes on where an interrupted matrix was; this begins anew.
evaluation: installed ## case studies and faults as in the paper, on this kernel (an hour, as root)
	@mkdir -p critpath-evaluation
	$(INSTALLED)/bin/python evaluation/case_studies/case_study_1.py --json $(STUDIES)/case_study_1.json
	$(INSTALLED)/bin/python evaluation/case_studies/case_study_2.py --json $(STUDIES)/case_study_2.json
	$(EVALUATE) evaluation/case_studies/pinned.py critpath-evaluation/pinned
	$(INSTALLED)/bin/python evaluation/case_studies/faults.py --csv critpath-evaluation/faults.csv \
	  --json $(STUDIES)/faults.json

# Debian's packages that it needs are named where they are missing.
evaluation-services: installed ## faults and healthy pairs of real servers (two hours, as root)
	$(EVALUATE) evaluation/services/run.py critpath-evaluation/services

WEATHER = critpath-evaluation/weather

evaluation-weather: installed ## faults beside busy neighbours, healthy pairs, and the league with peers (an hour, as root)
	sh evaluation/weather/services.sh $(CURDIR)/$(WEATHER)
	$(INSTALLED)/bin/python -P evaluation/weather/record.py $(WEATHER) --critpath $(INSTALLED)/bin/critpath \
	  --phase busy --phase quiet --phase healthy --phase straight
	$(INSTALLED)/bin/python -P evaluation/weather/league.py $(WEATHER) --record
	sh evaluation/weather/services.sh $(CURDIR)/$(WEATHER) down
	$(EVALUATE) evaluation/weather/judge.py $(INSTALLED)/bin/critpath --corpus $(WEATHER)
	$(EVALUATE) evaluation/weather/league.py $(WEATHER)

evaluation-healthy: installed ## 300 healthy pairs of each kind, boots of a guest, the smallest change that is found (two hours, as root)
	sh evaluation/weather/services.sh $(CURDIR)/$(WEATHER)
	$(INSTALLED)/bin/python -P evaluation/weather/healthy.py record $(WEATHER) --critpath $(INSTALLED)/bin/critpath
	$(EVALUATE) evaluation/weather/smallest.py $(WEATHER) --critpath $(INSTALLED)/bin/critpath
	sh evaluation/weather/services.sh $(CURDIR)/$(WEATHER) down
	tests/guest/build
	for boot in 1 2 3 4 5; do tests/guest/run evaluation/weather/guest.sh $(WEATHER)/boots/$$boot \
	  evaluation/weather evaluation/results.py; done
	$(INSTALLED)/bin/python -P evaluation/weather/healthy.py draw $(WEATHER) --boots $(WEATHER)/boots
	$(INSTALLED)/bin/python -P evaluation/weather/healthy.py judge $(WEATHER) --critpath $(INSTALLED)/bin/critpath \
	  --json evaluation/results/weather/healthy.json

evaluation-requests: installed ## how surely requests of real servers are found, and faults by them (an hour, as root)
	$(EVALUATE) evaluation/servers/run.py critpath-evaluation/requests
	$(EVALUATE) evaluation/servers/proxies.py critpath-evaluation/proxies
	$(EVALUATE) evaluation/servers/tiers.py critpath-evaluation/tiers
	$(EVALUATE) evaluation/servers/faults.py critpath-evaluation/faults
	$(EVALUATE) evaluation/servers/labels.py critpath-evaluation/labels --python critpath-evaluation/requests/python/bin/python
	$(EVALUATE) evaluation/services/run.py critpath-evaluation/services-requests --requests

evaluation-hosts: installed ## concurrent requests over several hosts, told apart: 8 workloads in 5 patterns (10 minutes, as root)
	$(EVALUATE) evaluation/hosts/clocks.py
	$(EVALUATE) evaluation/hosts/hosts.py critpath-evaluation/hosts

evaluation-night: installed ## a flight recorder through a night of twelve faults (two hours, as root)
	$(EVALUATE) evaluation/night/night.py --critpath $(INSTALLED)/bin/critpath --overhead 1% --slot 570 --healthy 300 \
	  --usual 2min --history 1min --keep critpath-evaluation/night
	$(INSTALLED)/bin/python -P evaluation/night/simulate.py critpath-evaluation/night --json evaluation/results/night/simulate.json

evaluation-overhead: installed ## five loads under budgets of 1 to 20 %, on this kernel (10 minutes, as root)
	$(EVALUATE) evaluation/simulation/budget.py fair global cascade
	$(EVALUATE) evaluation/recording/overhead.py critpath-evaluation/overhead

evaluation-smco: installed ## the two monitors of the paper on overhead control (three hours, a quiet machine)
	$(EVALUATE) evaluation/smco/smco.py critpath-evaluation/smco

ab-tables: installed ## how often critpath ab is right, simulated and live (an hour and a half); writes evaluation/results/ab.json
	$(INSTALLED)/bin/python evaluation/ab/ab_tables.py simulate
	$(INSTALLED)/bin/python evaluation/ab/ab_tables.py live --seconds 3000
	$(INSTALLED)/bin/python evaluation/ab/ab_tables.py simulate --only relabelled
	$(INSTALLED)/bin/python evaluation/ab/ab_tables.py cost
	$(INSTALLED)/bin/python evaluation/ab/ab_tables.py table

lint: $(VENV)/ready ## ruff and mypy --strict, and what a reviewer should look at
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/doubts.py

build: $(VENV)/built ## the virtual environment .venv, with critpath in it, editable

installed: $(VENV)/ready $(INSTALLED)/built ## an ordinary installation, which is what the tests test

docs: build packages-test ## renew what README.md and docs/ show of critpath
	$(BIN)/python docs/renew.py

screenshots: build packages-test ## the pictures of the report in docs/images, with chromium
	$(BIN)/python docs/renew.py screenshots

tutorial: build ## type the tutorial's commands and show what they print (needs root)
	$(BIN)/python docs/renew.py tutorial

site: build ## docs/*.md as pages, in build/site; a link that leads nowhere is an error
	$(BIN)/sphinx-build --quiet --nitpicky --fail-on-warning --keep-going -c docs/site . build/site
	@echo "build/site/index.html"

clean: ## remove .venv and everything that was built, less critpath-mutations/
	rm -rf $(VENV) build dist critpath-demo critpath-evaluation critpath-nightly

# ------------------------------------------------------------------- how it is set up

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "critpath needs Python 3.11 or later: make PYTHON=python3.12 names another" >&2; exit 1; }

packages: python
	@PYTHON="$(PYTHON)" sh .ci/packages build

packages-test: python | $(VENV)/ready
	@PYTHON="$(PYTHON)" sh .ci/packages test
	@sh .ci/peers $(abspath $(VENV))/peers

packages-guest: python
	@PYTHON="$(PYTHON)" sh .ci/packages guest

packages-wheels: python
	@PYTHON="$(PYTHON)" sh .ci/packages wheels

packages-fuzz: python
	@PYTHON="$(PYTHON)" sh .ci/packages fuzz

# What builds; what runs; all that development needs.  `make demo` has only the first two, and
# compiles while the second is fetched. A library's bytecode is made when it is first imported:
# of most that never comes.
$(VENV)/tools: .ci/locks/build.txt | packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --requirement .ci/locks/build.txt
	touch $@

$(VENV)/libraries: $(VENV)/tools .ci/requirements
	$(PYTHON) .ci/requirements > $(VENV)/requirements
	$(BIN)/pip install --quiet --no-compile --requirement $(VENV)/requirements
	touch $@

$(VENV)/ready: $(VENV)/libraries
	$(BIN)/pip install --quiet --group dev --requirement $(VENV)/requirements
	touch $@

# The Cython compiler is named by its place: it is found without .venv/bin on PATH.
$(VENV)/native.ini: | $(VENV)/tools
	rm -rf build
	printf "[binaries]\ncython = '%s'\n" "$(BIN)/cython" > $@

# Meson lists the sources when it configures: the directories are prerequisites, as a new
# or deleted file changes its directory's time.
DIRECTORIES = $(shell find critpath critpath_record marks/critpath_marks fixtures/lttng-guest lttng-sessions -type d ! -name __pycache__)
SOURCES = $(shell find critpath critpath_record marks/critpath_marks fixtures/lttng-guest lttng-sessions -type f ! -name '*.pyc')
# Both installations share one build directory: a native module is compiled once, and after a
# change of one `.pyx` only that.
MESON = --config-settings=build-dir=build/native \
  --config-settings=setup-args=--native-file=$(abspath $(VENV)/native.ini)
MESON_BUILD = meson.build $(wildcard */meson.build)

# To work on it: each file is a link to its source, so nothing is built or looked for at a start.
$(VENV)/built: $(VENV)/ready $(VENV)/native.ini $(MESON_BUILD) $(DIRECTORIES) $(filter %.pyx %.pxi %.c,$(SOURCES))
	$(BIN)/pip uninstall -qq --yes critpath  # had the files once
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --force-reinstall . $(MESON)
	$(BIN)/python tools/link_sources.py build/native
	touch $@

# What tests and demos start is an ordinary installation, in an environment of its own, which
# sees what .venv has.
$(INSTALLED)/pyvenv.cfg: $(VENV)/tools
	$(PYTHON) -m venv --without-pip $(INSTALLED)
	$(BIN)/python -c 'from sysconfig import get_path as p; print(p("purelib"), p("platlib"), sep="\n")' \
	  > "$$($(INSTALLED)/bin/python -c 'from sysconfig import get_path; print(get_path("purelib"))')/dev.pth"
	ln -sfn ../peers $(INSTALLED)/peers
	touch $@

# What all suites test, demos show and versions install, made once.  Meson-python names the Python
# that builds; it serves every one from 3.11 on, of which it uses the limited API (meson.build).
$(VENV)/wheel/made: $(VENV)/native.ini pyproject.toml $(MESON_BUILD) $(DIRECTORIES) $(SOURCES)
	rm -rf $(@D)
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(@D) . $(MESON)
	$(BIN)/python -m wheel tags --remove --python-tag cp311 $(@D)/*.whl >/dev/null
	touch $@

$(INSTALLED)/built: $(VENV)/wheel/made $(INSTALLED)/pyvenv.cfg $(VENV)/libraries
	$(BIN)/pip --python $(INSTALLED)/bin/python uninstall -qq --yes critpath  # had the files once
	$(BIN)/pip --python $(INSTALLED)/bin/python install --quiet --no-deps --force-reinstall $(VENV)/wheel/*.whl
	touch $@
