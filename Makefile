# make demo         train a small capsule network on handwritten digits and show its routing: animations and a page
# make test         one of everything in minutes: lint, types, doctests, every fact, pages, a notebook
# make test-all     everything: test, test-long, test-wheel, test-oldest and test-newer, one after the other
# make test-long    more: more graphs, float32, code that breaks a fact for the tests to find, the site
# make test-wheel   the wheel in an environment that has nothing else: the README's ten lines
# make test-oldest  the quick tests on the oldest libraries that pyproject.toml allows
# make test-newer   facts, layers, samplers and trainings on Python 3.13 or 3.14, for which DGL has no wheel
# make types        the type checker alone
# make docs         these pages and a reference of every public name, as a site: site/index.html
# make gpu          on a machine with a GPU: run the tests that need it, then time it beside PyTorch; ten minutes
# make gpu-files    collect in build/gpu what a machine with a GPU, torch and PyG, but no network, still lacks
#
# Each makes its virtual environment first. PYTHON=/path/to/python names the Python (3.10 to 3.14) to make it from.
# Without an NVIDIA driver torch comes without CUDA, if TORCH_INDEX=URL answers; TORCH=cpu asks for that in any case,
# TORCH=default for pip's own choice.

# The most tested Python comes first.
PYTHON ?= python3.12 python3.11 python3.10 python3.13 python3.14 python3
VENV ?= .venv
OLDEST = .venv-oldest
NEWER = .venv-newer
TORCH ?= auto
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

INSTALL = sh .ci/install
STAGE = @sh .ci/stage
INSTALLING = "Installing into $(@D): minutes, mostly for torch; with CUDA it is 3 GB to download the first time"
PAGE = runs/demo/figures/explorer.html
# Workers steal tests, because the slowest stand together. Failures are named last, where a log that is cut still has them.
PYTEST = -m pytest -n 2 --dist worksteal -rsfE
# torch would start a thread per core in each of pytest's workers.
test test-long test-oldest test-newer: export OMP_NUM_THREADS = 1

.PHONY: help demo test test-all test-long test-wheel test-oldest test-newer types docs gpu gpu-files lower-bounds

help:
	@sed '/^$$/q; s/^# *//' Makefile

demo: $(VENV)/installed
	@rm -rf runs/demo
	$(STAGE) 'Training on handwritten digits: 20 to 60 seconds on a core of its own' \
		$(VENV)/bin/graphcaps train --dataset digits --model compact --epochs 5 --batch-size 32 --name demo
	$(STAGE) 'Animations: 10 to 20 seconds' $(VENV)/bin/graphcaps viz runs/demo
	$(STAGE) 'A page to draw on, with the network in it: 5 seconds' $(VENV)/bin/graphcaps explore runs/demo
	@printf 'For the command graphcaps: . $(VENV)/bin/activate\n'
	@printf 'Open this page in a browser and draw a digit: %s\n' '$(CURDIR)/$(PAGE)'

test: $(VENV)/installed-dev types
	$(VENV)/bin/ruff check graphcaps viz experiments tests notebooks examples docs/*.py setup.py
	$(VENV)/bin/ruff format --check graphcaps viz experiments tests notebooks examples docs/*.py setup.py
	$(VENV)/bin/python $(PYTEST)

test-long: $(VENV)/installed-dev
	$(VENV)/bin/python $(PYTEST) -m long

test-all:
	$(MAKE) test
	$(MAKE) test-long
	$(MAKE) test-wheel
	$(MAKE) test-oldest
	$(MAKE) test-newer

test-wheel: $(VENV)/installed
	$(STAGE) 'The wheel, alone in an environment: minutes' \
		sh .ci/bare-wheel $(abspath $(VENV))/bin/python $(TORCH) '$(TORCH_INDEX)' build/bare
	@rm -rf build/bare

# mypy checks the package as the wheel has it, with viz inside, by links in build/types.
types: $(VENV)/installed-dev
	@rm -rf build/types && mkdir -p build/types/graphcaps
	@for part in graphcaps/*; do ln -s "$(CURDIR)/$$part" build/types/graphcaps/; done
	@ln -s "$(CURDIR)/viz" build/types/graphcaps/viz
	@cd build/types && $(abspath $(VENV))/bin/python -m mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p graphcaps

# Sphinx's warnings are errors. Python's own are about what torch will drop one day, not about a page.
docs: $(VENV)/installed-dev
	@rm -rf site
	$(VENV)/bin/python -W ignore::FutureWarning -m sphinx -q -E -W --keep-going -d build/docs docs site
	@printf 'Open this page in a browser: %s\n' '$(CURDIR)/site/index.html'

# A machine with a GPU may have no network: `make gpu-files` fills build/gpu elsewhere, for the same Python. Without make,
# `sh .ci/gpu PYTHON` does the same there.
gpu: $(if $(wildcard build/gpu),,$(VENV)/installed-dev)
	@sh .ci/gpu "$(if $(wildcard build/gpu),$$(sh .ci/find-python $(PYTHON)),$(VENV)/bin/python)"

gpu-files: $(VENV)/installed-dev
	@rm -rf build/gpu
	$(VENV)/bin/python -m pip install --no-deps --target build/gpu dgl tyro docstring-parser typeguard rich pytest-xdist execnet

# Pages, damaged files and timings don't depend on the libraries' age.
NOT_OLDEST = $(addprefix --ignore=tests/,attack experiments viz test_notebooks.py)

test-oldest: $(OLDEST)/installed-dev
	$(OLDEST)/bin/python $(PYTEST) $(NOT_OLDEST)

# Tests that call DGL, whose C++ is called through ctypes there.
CALLS_DGL = test_facts graph/test_graph nn/test_on_nodes test_training

test-newer: $(NEWER)/installed-dev
	$(NEWER)/bin/python $(PYTEST) $(CALLS_DGL:%=tests/%.py)

LOWER_BOUNDS = sed -n '/^dependencies = \[/,/^\]/ s/^ *"\([a-z-]*\)>=\([0-9.]*\)\([^"]*\)".*/\1==\2\3/p' pyproject.toml

lower-bounds:
	@$(LOWER_BOUNDS)

# No Python 3.12: some of the oldest libraries have no wheels for it.
$(OLDEST)/bin/python: PYTHON = python3.11 python3.10
$(NEWER)/bin/python: PYTHON = python3.13 python3.14
$(VENV)/bin/python $(OLDEST)/bin/python $(NEWER)/bin/python:
	@python=$$(sh .ci/find-python $(PYTHON)) && echo "Making $(@:/bin/python=) from $$python" && \
		rm -rf $(@:/bin/python=) && "$$python" -m venv $(@:/bin/python=)

# A stamp that is newer than pyproject.toml says that an environment is up to date. The install is editable, so code
# needs no stamp.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(STAGE) $(INSTALLING) $(INSTALL) $(VENV)/bin/python $(TORCH) '$(TORCH_INDEX)' -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(STAGE) $(INSTALLING) $(INSTALL) $(VENV)/bin/python $(TORCH) '$(TORCH_INDEX)' -e '.[dev]'
	@touch $@ $(VENV)/installed

$(NEWER)/installed-dev: pyproject.toml | $(NEWER)/bin/python
	$(STAGE) $(INSTALLING) $(INSTALL) $(NEWER)/bin/python $(TORCH) '$(TORCH_INDEX)' -e '.[dev]'
	@touch $@

$(OLDEST)/installed-dev: pyproject.toml | $(OLDEST)/bin/python
	$(LOWER_BOUNDS) > $(OLDEST)/lower-bounds.txt
	$(INSTALL) $(OLDEST)/bin/python default '' -e '.[dev]' -c $(OLDEST)/lower-bounds.txt
	@touch $@
