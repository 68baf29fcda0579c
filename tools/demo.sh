#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - from a bare machine to vectors: packages, build, default model, then the main job on the
# sample sentences of examples/demo.txt. Every step is skipped when it was done before.
. "$(dirname "$0")/say.sh"

tools/setup.sh build
tools/build.sh release fletch fletch_shared
folder=$(tools/get_model.sh medium)
say "embedding the sentences of examples/demo.txt: build/fletch embed --similarity"
build/fletch embed --model "$folder" --input examples/demo.txt --similarity --stats ||
    stop "fletch embed" "build/fletch doctor tells what this machine and this model folder offer"
say "that was: build/fletch embed --model ${folder#"$ROOT"/} --input examples/demo.txt --similarity --stats"
if ! build/fletch model path medium >/dev/null 2>&1; then # not in the hub cache: only this folder has it
    note "fletch finds the model without --model after: export FLETCH_MODEL=${folder@Q}"
fi
note "next: build/fletch embed \"your own text\"; build/fletch --help; make check"
