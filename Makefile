# SPDX-License-Identifier: Apache-2.0
# Makefile - the short verbs a person types. The build itself is CMake + Ninja (CMakePresets.json); each
# verb below is one script of tools/, which says what it does and, when a step fails, what to do.
PREFIX  ?= /usr/local
DESTDIR ?=
T       ?=
export PREFIX DESTDIR T

.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: python build demo setup model onnxruntime cuda check check-san check-full test soak bench tidy format asan tsan fuzz coverage install release release-check clean help

build: ## build/fletch, build/libfletch.so and .a (Release)
	@tools/build.sh release fletch fletch_shared fletch_static

demo: ## everything from nothing: packages, build, default model, a similarity table
	@tools/demo.sh

setup: ## install the Debian packages that are missing (build and tests)
	@tools/setup.sh check

model: ## get the default model into .cache/models
	@tools/get_model.sh medium

onnxruntime: ## get the ONNX Runtime library into .cache/onnxruntime
	@tools/onnxruntime.sh

cuda: ## build/libfletch_cuda.so, the engine for NVIDIA GPUs (needs nvcc)
	@tools/cuda.sh

python: ## the Python package: wheel, every test, those against sentence-transformers too (3 GB)
	@tools/python.sh

check: ## every test of the release build: unit, kernels, golden, command line, server, Python
	@tools/check.sh

check-san: ## unit tests under sanitizers, fuzz targets (200,000 inputs or 15 s each)
	@tools/check.sh san

check-full: ## check and check-san, and again with the large model (400 MB) and the capped instruction sets
	@tools/check.sh full

test: ## the tests whose name holds T: make test T=wordpiece
	@tools/test.sh "$(T)"

soak: ## 200,000 texts under a memory limit: nobody killed, nothing lost, nothing grows (20 minutes)
	@tools/soak.sh

bench: ## measure against onnxruntime, OpenVINO and sentence-transformers (downloads them, 1.5 GB)
	@tools/bench.sh

tidy: ## include law, limits, clang-format, clang-tidy, cppcheck
	@tools/tidy.sh

format: ## let clang-format lay out every C file
	@tools/format.sh

asan tsan: ## the unit tests under that sanitizer
	@tools/sanitize.sh $@

fuzz: ## each fuzz target for 60 s, another way each time
	@tools/sanitize.sh fuzz 60

coverage: ## which lines the tests reach: build-coverage/index.html
	@tools/coverage.sh

install: build ## install into $(DESTDIR)$(PREFIX)
	@tools/install.sh

release: ## every artefact of a release into build-release/dist (docs/install.md; needs what tools/setup.sh release installs)
	@tools/release/release.sh

release-check: ## each of them installed where nothing else is, and asked for the same bytes (root)
	@tools/release/check.sh

clean: ## remove build/ and build-*/ (models in .cache/ stay)
	rm -rf build build-*/

help: ## this list
	@sed -n 's/^\([a-z][a-z -]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | \
	  while IFS='|' read -r verb text; do printf '  make %-14s %s\n' "$$verb" "$$text"; done
