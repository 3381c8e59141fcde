# SPDX-License-Identifier: Apache-2.0
# The front door: each target sets up what it lacks and calls meson, the one build system. `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SETUP ?= -Dprefix=$(PREFIX)
MESON = tools/meson.sh

.DEFAULT_GOAL := build
.PHONY: help demo test build dev bench check install clean format setup

help:   ## list the targets
	@sed -n 's/^\([a-z]*\): .*## /make \1  \t/p; s/^\([a-z]*\):  *## /make \1  \t/p' Makefile

demo: build   ## build, prove Lion, time it: under two minutes
	$(BUILD)/cli/quern bench lion --workload gpt2-124m

test:   ## the whole test suite: compilers, sanitizers, tiers, aarch64, valgrind, every CUDA architecture
	tools/setup.sh test
	tools/test.sh

setup:   ## install what building needs (make test installs what testing needs besides)
	tools/setup.sh demo

build: setup   ## build the library and the command
	@test -f $(BUILD)/build.ninja || $(MESON) setup $(BUILD) $(SETUP)
	$(MESON) compile -C $(BUILD) -j $(JOBS)

dev:   ## a build that is surely fresh, and how to use it from the tree
	tools/setup.sh demo
	tools/dev.sh $(BUILD)

bench: build   ## time every op on its first workload
	$(BUILD)/cli/quern bench

check: build   ## prove every op on this machine
	$(BUILD)/cli/quern check

install: build   ## to PREFIX (default /usr/local), under DESTDIR
	$(MESON) configure $(BUILD) -Dprefix=$(PREFIX)
	DESTDIR='$(DESTDIR)' $(MESON) install -C $(BUILD)

format:   ## bring every C file into the project's format
	tools/format.sh -i

clean:   ## remove all that is made here and not in git
	rm -rf $(BUILD) build-asan build-tsan build-clang build-aarch64 .venv .venv-* dist .pytest_cache .ruff_cache
	rm -rf subprojects/xxhash-* subprojects/packagecache python/quern/libquern.so*
	find . -name __pycache__ -type d -not -path './.git/*' -exec rm -rf {} +
