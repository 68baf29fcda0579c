#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# try.sh FILE - one artefact on the machine that it was made for, and its program held to tests/golden/numerics.json, byte for
# byte; a Python module to its program. An archive is unpacked, a wheel installed into an environment, install.sh run for a
# folder, all in build-release/try; of fletch_VERSION_ARCHITECTURE.deb the packages are installed into the system (as root).
# What was installed is then removed, and nothing of it may be left. Needs bash, Python 3.11 and pip; no compiler. This is
# what .github/workflows/release.yml runs on a real machine of each system, and what to run on one that nobody has tried.
. "$(dirname "$0")/../say.sh"

artefact=${1:?an archive, wheel, package or the install.sh of build-release/dist}
folder=$ROOT/build-release/try
venv=$folder/venv
rm -rf "$folder"
mkdir -p "$folder"
"$(find_python)" -m venv "$venv"
bin=$venv/bin
[ -d "$bin" ] || bin=$venv/Scripts
"$bin"/python -m pip -q install numpy pytest
python=$bin/python
case $artefact in
*.whl)
    "$python" -m pip -q install "$artefact"
    program=$bin/fletch
    [ ! -f "$program".exe ] || program+=.exe ;;
*.deb)
    for package in libfletch0 libfletch-dev python3-fletch fletch; do
        packages+=("$(realpath "${artefact/%fletch_*/${package}_${artefact##*fletch_}}")")
    done
    apt-get -qy install "${packages[@]}"
    program=/usr/bin/fletch python=/usr/bin/python3 ;;
*install.sh)
    installer=(env FLETCH_URL="file://$(realpath "$(dirname "$artefact")")" FLETCH_PREFIX="$folder/prefix" sh "$artefact")
    "${installer[@]}"
    program=$folder/prefix/bin/fletch ;;
*.zip) "$python" -m zipfile -e "$artefact" "$folder" && program=$(echo "$folder"/fletch-*/fletch.exe) ;;
*) tar xzf "$artefact" -C "$folder" && program=$(echo "$folder"/fletch-*/bin/fletch) ;;
esac
say "$("$program" version | head -n 1): $program"
"$program" doctor --report || note "the doctor found no model, which is no fault here"
[[ $artefact != *.whl && $artefact != *.deb ]] || "$python" - "$program" <<'END'
import asyncio, subprocess, sys
import fletch

folder, texts = "tests/golden/folders/family-modernbert", ["A cat sits on the mat.", "A feline rests on a rug."]
told = subprocess.run([sys.argv[1], "embed", "-m", folder, "--format", "raw", *texts], capture_output=True, check=True).stdout
with fletch.Model(folder) as model:
    assert model.embed(texts).tobytes() == told, "the module's bytes are not its program's"
    assert asyncio.run(model.aembed(texts)).tobytes() == told, "asyncio"
    assert b"".join(row.tobytes() for row in model.embed_iter(texts * 50)) == told * 50, "embed_iter"
print("the module gives the bytes of the program: embed, aembed, embed_iter")
END
FLETCH_BIN=$program "$bin"/python -m pytest -q -p no:cacheprovider tests/golden/test_numerics.py

case $artefact in
*.deb)
    apt-get -qy purge libfletch0 libfletch-dev python3-fletch fletch
    left=$(find /usr /etc /var/lib -xdev -path "$ROOT" -prune -o -name '*fletch*' -print) ;;
*install.sh)
    "${installer[@]}" --uninstall
    left=$(find "$folder/prefix" -mindepth 1) ;;
*) left='' ;;
esac
[ -z "$left" ] || stop "this is left behind: $left"
