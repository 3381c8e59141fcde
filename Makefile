# SPDX-License-Identifier: Apache-2.0
# The front door: each target sets up what it lacks and calls meson, the one build system. `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SETUP ?= -Dprefix=$(PREFIX)
TARGETS ?= quern:shared_library quern:executable
MESON = tools/meson.sh

# LANES="clang asan": these of tools/lanes.py. OPTIONS: of tools/test.py.
LANES ?=
OPTIONS ?=

.DEFAULT_GOAL := build
.PHONY: help demo test test-all test-torch wheel hf-kernel build dev bench check install clean format setup

help:   ## list the targets
	@sed -n 's/^\([a-z-]*\): .*## /make \1\t/p' Makefile | expand -t 18

demo: build   ## build, check Lion, time it: under two minutes
	$(BUILD)/cli/quern bench lion --workload gpt2-124m

test:   ## a contributor's tests: CPU, emulator, NVRTC for sm_90a, Python on NumPy; ten minutes on two cores
	tools/setup.sh test
	python3 tools/test.py $(OPTIONS) $(LANES)

test-all:   ## the whole matrix: also compilers, sanitizers, aarch64, valgrind, all architectures, frameworks
	tools/setup.sh all
	python3 tools/test.py $(OPTIONS) all

test-torch:   ## the Python package with the newest PyTorch, JAX and kernels, and with the oldest PyTorch
	tools/setup.sh python
	python3 tools/test.py torch torch-oldest

wheel:   ## make the Python wheel and the source archive in dist/, and try both
	tools/setup.sh python
	tools/wheel.sh

hf-kernel: build   ## make build/hf-kernel/lion, a kernel for Hugging Face's kernels
	python3 tools/hf_kernel.py $(BUILD)/src/libquern.so $(BUILD)/hf-kernel/lion

setup:   ## install the packages that building needs (make test installs those of the tests)
	tools/setup.sh demo

build: setup   ## build the library and the command
	@test -f $(BUILD)/build.ninja || $(MESON) setup $(BUILD) $(SETUP)
	$(MESON) compile -C $(BUILD) -j $(JOBS) $(TARGETS)

dev:   ## build anew, and print the variables that use the build from the tree
	tools/setup.sh demo
	tools/dev.sh $(BUILD)

bench: build   ## time every op on its first workload
	$(BUILD)/cli/quern bench

check: build   ## check every op on this machine
	$(BUILD)/cli/quern check

install: build   ## install to PREFIX (default /usr/local), under DESTDIR
	$(MESON) configure $(BUILD) -Dprefix=$(PREFIX)
	DESTDIR='$(DESTDIR)' $(MESON) install -C $(BUILD)

format:   ## bring every C and Python file into the project's format
	tools/format.sh -i
	python=$$(tools/venv.sh numpy) && $$python -m ruff check -q --fix . && $$python -m ruff format -q .

clean:   ## remove all that is made here and not in git
	rm -rf $(BUILD) build-asan build-tsan build-clang build-aarch64 .venv .venv-* dist train-gpt .pytest_cache .ruff_cache
	rm -rf subprojects/xxhash-* subprojects/packagecache python/quern/libquern.so*
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +
