#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [QUESTION[:PART] ...] [ARGUMENTS of bench/run.py] - the race against the best peers on this machine.
# Questions: throughput latency threads quality tokenizer start kernels (none: all); throughput:short and latency:16 are
# parts, each kept as soon as it is measured. "quick" is the form of less than 10 minutes, and --model-folder FOLDER
# another model than the default. Makes build/bench-venv with bench/requirements.txt once (about
# 1.5 GB to download, 5 GB on disk); FLETCH_BENCH_PYTHON names a Python that has them already. The words may also come
# as T: make bench T="quick tokenizer". Results: bench/results/DATE-MACHINE-MODEL.{json,md,svg}.
# bench.sh render - docs/performance.md from the newest results; measures nothing. Every other run does it at its end.
# bench.sh runtime [ARGUMENTS of bench/runtime.py] - what the scheduler costs and gains; needs no peers.
# bench.sh compare COMMIT [ARGUMENTS of bench/compare.py] - this tree's engine and kernels against that commit's, in turns;
# needs no peers and no model.
# bench.sh families [ROW ...] [ARGUMENTS of bench/families.py] - nomic, GTE, ModernBERT, e5-small and Qwen3 at full size with random
# weights against onnxruntime, OpenVINO, sentence-transformers and llama.cpp; what cls pooling and a shared prompt save.
# bench.sh heads [ARGUMENTS of bench/heads.py] - rerankers, SPLADE and static models against their peers, in 6 minutes.
# bench.sh tokenizers [FILE ...] - tokenizer.json files by language against the wheel and every fast engine that the Python has
# (bench/tokenizer_requirements.txt); no FILE: the real ones of FLETCH_TEST_DATA, the default model's (WordPiece), and
# DeepSeek's, CLIP's, Falcon's, Phi-4's steps and Metaspace alone, made on the spot (bench/tokenizer_kinds.py). With --patience before
# the files: how long each works on for a client that has left.
# bench.sh hostile [ARGUMENTS of bench/hostile.py] - what a small request takes under 24 clients that mean harm, against calm.
# bench.sh host [ARGUMENTS of bench/host.py] - how many texts a second the host can hand to a device; likewise.
. "$(dirname "$0")/say.sh"

# The words of T come first; `quick` and `--model-folder` are ours, the rest is run.py's.
read -ra words <<<"${T:-}"
words+=("$@")
folder='' arguments=()
for ((i = 0; i < ${#words[@]}; i++)); do
    case ${words[i]} in
        quick) arguments+=(--quick) ;;
        --model-folder) folder=${words[++i]:?bench.sh: --model-folder needs a folder} ;;
        *) arguments+=("${words[i]}") ;;
    esac
done
set -- "${arguments[@]}"

if [ "${1:-}" = render ]; then
    exec "$(find_python)" bench/report.py docs/performance.md bench/results
fi

# bench_engine and fl-kernels of a commit, built apart: its build folder holds no more than these two afterwards.
build_commit() { # HASH
    [ ! -x build/compare/"$1"/bench_engine ] || return 0
    say "compare: building $1"
    git worktree remove --force build/compare/tree 2>/dev/null || true
    git worktree prune
    git worktree add --quiet --detach build/compare/tree "$1"
    build/compare/tree/tools/build.sh release bench_engine fl-kernels
    mkdir -p build/compare/"$1"
    cp build/compare/tree/build/{bench_engine,fl-kernels} build/compare/"$1"/ 2>/dev/null ||
        stop "no bench_engine and fl-kernels where $1 builds them" "compare with a later commit"
    git worktree remove --force build/compare/tree
}

if [ "${1:-}" = compare ]; then
    before=$(git rev-parse --short "${2:?bench.sh compare: which commit}^{commit}")
    after=$(git rev-parse --short HEAD)
    git diff --quiet HEAD || after=$after+
    shift 2
    tools/setup.sh build
    tools/build.sh release bench_engine fl-kernels
    build_commit "$before"
    exec "$(find_python)" bench/compare.py build/compare/"$before" build --names "$before" "$after" "$@"
fi

tools/setup.sh build
tools/build.sh release fletch fletch_shared token_dump bench_engine fl-kernels
folder=${folder:-$(tools/get_model.sh medium)}
test_environment

case ${1:-} in
    tokenizers | hostile | runtime | host)
        question=$1
        shift
        python=${FLETCH_BENCH_PYTHON:-$(find_python)}
        case $question in
            hostile) exec "$python" bench/hostile.py "$@" ;;
            runtime | host)
                tools/build.sh release "bench_$question"
                exec "$python" "bench/$question.py" --model "$folder" "$@"
                ;;
        esac
        how=(--output "bench/results/$(date +%F)-tokenizers.md")
        if [ "${1:-}" = --patience ]; then
            how=(--patience)
            shift
        fi
        if [ $# = 0 ]; then
            kinds=build/bench-kinds
            "$python" bench/tokenizer_kinds.py "$kinds"
            set -- "$FLETCH_TEST_DATA"/tokenizers/*.json "$kinds"/*.json "$folder/tokenizer.json"
        fi
        exec "$python" bench/tokenizer_speed.py "${how[@]}" "$@"
        ;;
esac

python=${FLETCH_BENCH_PYTHON:-}
if [ -z "$python" ]; then
    python=$ROOT/build/bench-venv/bin/python
    want=$(sha256sum bench/requirements.txt | cut -d' ' -f1)
    if [ "$(cat build/bench-venv/.requirements 2>/dev/null)" != "$want" ]; then
        say "bench: installing the peers into build/bench-venv (about 1.5 GB to download)"
        rm -rf build/bench-venv
        "$(find_python)" -m venv build/bench-venv
        "$python" -m pip install --disable-pip-version-check -r bench/requirements.txt \
            >build/bench-venv.log 2>&1 ||
            stop "pip could not install bench/requirements.txt (output: build/bench-venv.log)" \
                 "check network and disk space, then try again"
        echo "$want" >build/bench-venv/.requirements
    fi
fi
[ -f "$FLETCH_TEST_DATA/stsb-en-train.jsonl" ] ||
    stop "no text sets at $FLETCH_TEST_DATA" "set FLETCH_TEST_DATA to the folder of stsb-en-train.jsonl"
question=run document=docs/performance.md
case ${1:-} in
    families) question=$1 document=docs/models.md; shift ;;
    heads) exec "$python" bench/heads.py --model "$folder" "${@:2}" ;;
esac
exec "$python" "bench/$question.py" --model "$folder" --document "$document" "$@"
