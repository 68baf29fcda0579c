#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [PART ...] - what lies in build-release/dist is proven: installed where nothing else is, asked for the vectors
# of a tiny model and, on this processor, of all-MiniLM-L6-v2, whose bytes must be those of build/fletch; removed without
# a trace. The last line sums up; what cannot be had here (wine, an emulator, Debian's archive) is skipped and says so.
# Parts, all of them where none is named:
#   sums         SHA256SUMS, its signature, names in the tables
#   again        the first program, archives, wheels and image made a second time: the same bytes; with FLETCH_AGAIN=all every
#                program, module and package, and the apt repository, an hour
#   static       the programs for Linux in an empty root; aarch64 by an emulator
#   install      install.sh and --uninstall in bare roots of Debian 11, 12 and 13 and Ubuntu 24.04, in one of busybox alone, and in
#                one of Debian 12 on ARM by an emulator; another file, another key: refused; how long from nothing to the first vector
#   wheels       the wheel for this processor and glibc in an empty environment, that for musl by a Python that is compiled for it,
#                that for aarch64 in a root of it, by an emulator
#   deb          the Debian packages in bare roots of Debian 12 and 13 and Ubuntu 24.04, out of the apt repository, over an
#                older one; in one of arm64, by an emulator
#   image        the OCI image, unpacked, as its user, with its health check; aarch64 by an emulator
#   windows      the zip, its server in a console and as a service, and the wheel, by wine
#   macos        Mach-O files of their processors, signed (ad hoc) on ARM; nothing runs them
#   manifests    formula, derivation and the manifests for Windows, by the readers that are here
. "$(dirname "$0")/facts.sh"

dist=$DIST
work=$ROOT/build-release/check
log=$ROOT/build-release/check.log
parts=("$@")
[ $# -gt 0 ] || parts=(sums again static install wheels deb image windows macos manifests)
[ -f "$dist/SHA256SUMS" ] || stop "there is no release in build-release/dist" "make release"
[ "$(id -u)" = 0 ] || stop "roots are made and entered by root alone" "run it as root, in a container or a machine of its own"
export FLETCH_PROVIDER_NUMERICS=portable FLETCH_PROVIDER_ORDER=cpu # the same bytes on every machine (docs/numerics.md)
passed=0 failed=0 skipped=0
took="%R s, of them %U + %S a processor's; no model was downloaded" # TIMEFORMAT's
rm -rf "$work"
mkdir -p "$work/models"
: >"$log"

check() { # WHAT COMMAND…
    printf '\n---- %s\n' "$1" >>"$log"
    local status
    set +e # bash forgets `set -e` inside of a condition
    (set -e; "${@:2}") >>"$log" 2>&1
    status=$?
    set -e
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        note "ok: $1"
    else
        failed=$((failed + 1))
        note "FAILED: $1"
    fi
}

skip() { # WHAT WHY
    skipped=$((skipped + 1))
    note "skipped: $1: $2"
}

# ---- What is asked ----

cp -rL tests/golden/folders/family-modernbert "$work/models/tiny"
cp -rL "$(tools/get_model.sh medium)" "$work/models/minilm"
python3 - tests/golden/folders/texts.json >"$work/texts.jsonl" <<'END'
import json, sys
for text in json.load(open(sys.argv[1], encoding="utf-8")):
    print(json.dumps(text))
END
embed=(embed --input-format jsonl --model-max-length 60 --format raw)
for model in tiny minilm; do
    build/fletch "${embed[@]}" -m "$work/models/$model" <"$work/texts.jsonl" >"$work/$model.raw"
done
# The table that tests/golden/test_numerics.py holds every build to.
check "build/fletch gives the bytes of numerics.json" python3 -c "import hashlib, json
table = json.load(open('tests/golden/numerics.json'))
want = table['bytes']['portable']['family-modernbert']['fp32']
assert hashlib.sha256(open('$work/tiny.raw', 'rb').read()).hexdigest()[:16] == want"

vectors() { # "MODEL…" FOLDER-OF-MODELS COMMAND…
    local model
    for model in $1; do
        # A pipe: wine gives a program a file as standard input that it cannot ask anything about.
        # shellcheck disable=SC2002
        cat "$work/texts.jsonl" | "${@:3}" "${embed[@]}" -m "$2/$model" >"$work/told.raw"
        cmp "$work/told.raw" "$work/$model.raw"
    done
}

ask_python() { # FOLDER-OF-ROWS FOLDER-OF-MODELS "MODEL…": a program that fails unless the module gives the same bytes
    cat <<-END
	import json, fletch
	texts = [json.loads(line) for line in open("$1/texts.jsonl", encoding="utf-8")]
	for name in "$3".split():
	    with fletch.Model("$2/" + name, config={"model.max_length": 60, "provider.numerics": "portable"}) as model:
	        assert model.embed(texts, truncate="right").tobytes() == open(f"$1/{name}.raw", "rb").read(), name
	END
}

unpack_program() { # SYSTEM FOLDER
    mkdir -p "$2"
    tar xzf "$dist/fletch-$version-$1.tar.gz" -C "$2" --strip-components=1
}

# A copy of a bare root to work in: $root, and what to run a command there by: $inside. Or $why not.
make_root() { # SUITE [arm64]
    local kept
    if ! kept=$(tools/release/root.sh "$@" 2>"$work/why"); then
        why=$(sed -n 's/^failed: //p' "$work/why")
        return 1
    fi
    root=$work/$1${2:+-$2}
    inside=(${2:+tools/release/emulated.sh} chroot "$root")
    rm -rf "$root"
    cp -a "$kept" "$root"
    cp /etc/resolv.conf "$root/etc/"
    cp -r "$work/models" "$root/models"
}

# ---- The parts ----

apt="DEBIAN_FRONTEND=noninteractive apt-get -qy"

check_sums() {
    check "SHA256SUMS" env -C "$dist" sha256sum -c --quiet SHA256SUMS
    check "every file is in SHA256SUMS" test -z "$(cd "$dist" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' |
        grep -vxFf <(cut -c67- SHA256SUMS))"
    if [ -f "$dist/SHA256SUMS.minisig" ] && command -v minisign >/dev/null; then
        check "the signature" minisign -Vqm "$dist/SHA256SUMS" -P "$(sed -n 's/^key=.*-\(.*\)}$/\1/p' "$dist/install.sh")"
    else
        skip "the signature" "the release has none (FLETCH_MINISIGN), or minisign is not installed"
    fi
}

same_files() { # FOLDER: all that it has
    ! diff -r "$1" "$dist" | grep -vF "Only in $dist"
}

check_again() {
    local again=$work/again targets target module program
    mapfile -t targets < <(grep -v '^#' tools/release/targets.tsv | cut -f1)
    [ "${FLETCH_AGAIN:-}" = all ] || targets=("${targets[0]}")
    # Nothing that a compiler remembers of the first time.
    export CCACHE_DISABLE=1 ZIG_GLOBAL_CACHE_DIR=$again/zig
    for target in "${targets[@]}"; do
        check "$target compiled again, in another folder" tools/release/build.sh "$target" "$again/$target"
        program=fletch module=python/fletch/_fletch.abi3.so
        [ "$target" != windows ] || program=fletch.exe module=python/fletch/_fletch.pyd
        check "its program has the same bytes" cmp "$again/$target/$program" "build-release/$target/$program"
        check "its Python module has the same bytes" cmp "$again/$target/$module" "build-release/$target/$module"
    done
    export DIST=$again/dist
    check "archives packed again" python3 tools/release/pack.py archives
    check "wheels packed again" python3 tools/release/pack.py wheels "$dist/fletch-$version.tar.gz"
    check "image packed again" python3 tools/release/pack.py image
    [ "${FLETCH_AGAIN:-}" != all ] || check "packages made again" tools/release/deb.sh
    DIST=$dist
    unset CCACHE_DISABLE ZIG_GLOBAL_CACHE_DIR
    check "they have the same bytes" same_files "$again/dist"
}

check_static() {
    local root=$work/empty
    unpack_program linux-x86_64 "$root"
    cp -r "$work/models" "$root/models"
    check "static x86-64 in an empty root" vectors "tiny minilm" /models chroot "$root" /bin/fletch
    command -v qemu-aarch64-static >/dev/null || { skip "static aarch64" "no qemu-aarch64-static"; return; }
    root=$work/empty-arm
    unpack_program linux-aarch64 "$root"
    cp -r "$work/models" "$root/models"
    cp "$(command -v qemu-aarch64-static)" "$root/qemu"
    check "static aarch64 in an empty root, emulated" vectors tiny /models chroot "$root" /qemu -cpu max /bin/fletch
}

serve_dist() { # a web server of this machine's alone; sets url
    python3 -c 'import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()' "$1" >"$work/port" 2>/dev/null &
    web=$!
    trap 'kill $web 2>/dev/null || true' EXIT # a status there would be the script's
    until [ -s "$work/port" ]; do sleep 0.1; done
    url=http://127.0.0.1:$(cat "$work/port")
}

list_files() { # ROOT
    find "$1" -xdev \( -path "$1/proc" -o -path "$1/models" -o -path "$1/tmp" \) -prune -o -print | sort
}

check_install() {
    local suite models key
    mkdir -p "$work/web"
    cp -r "$dist"/. "$work/web"/
    serve_dist "$work/web"
    local get="{ curl -fsSL $url/install.sh || wget -qO- $url/install.sh; }"
    for suite in bullseye bookworm trixie noble busybox "bookworm arm64"; do
        models="tiny minilm"
        [ "${suite% *}" = "$suite" ] || models=tiny
        # shellcheck disable=SC2086 # two words
        make_root $suite || { skip "install.sh on $suite" "$why"; continue; }
        list_files "$root" >"$work/before"
        TIMEFORMAT="   from nothing to the first vector on $suite: $took"
        time {
            check "install.sh on $suite" "${inside[@]}" sh -c "$get | FLETCH_URL=$url sh"
            check "its first vector on $suite" "${inside[@]}" fletch embed -m /models/tiny --format raw hello -o /tmp/first
        }
        check "its vectors on $suite" vectors "$models" /models "${inside[@]}" fletch
        check "--uninstall on $suite" "${inside[@]}" sh -c "$get | sh -s -- --uninstall"
        list_files "$root" >"$work/after"
        check "nothing is left on $suite" diff "$work/before" "$work/after"
    done
    [ -f "$dist/SHA256SUMS.minisig" ] || { skip "a wrong signature" "the release has none (FLETCH_MINISIGN)"; return; }
    key=$(sed -n 's/^key=.*-\(.*\)}$/\1/p' "$dist/install.sh")
    # shellcheck disable=SC2317 # check calls them
    install_here() { env FLETCH_URL="$url" FLETCH_PREFIX="$work/prefix" "$@" sh "$dist/install.sh"; }
    # shellcheck disable=SC2317
    refused() { ! "$@" && [ ! -e "$work/prefix/bin" ]; }
    check "another key is refused" refused install_here FLETCH_PUBLIC_KEY="${key%????}AAA="
    mkdir -p "$work/tools"
    for tool in sh id curl tar sha256sum cut grep sed sort mktemp rm dirname mkdir cp mv find uname tr openssl dd od cat gzip rmdir; do
        ln -sf "$(command -v $tool)" "$work/tools/$tool"
    done
    check "the signature by openssl alone" install_here PATH="$work/tools"
    rm -rf "$work/prefix"
    check "another key is refused by openssl" refused install_here PATH="$work/tools" FLETCH_PUBLIC_KEY="${key%????}AAA="
    echo >>"$work/web/fletch-$version-linux-x86_64.tar.gz"
    check "another archive is refused" refused install_here
    kill $web
}

check_wheels() {
    local machine wheel venv=$work/venv
    machine=$(uname -m)
    wheel=$(echo "$dist"/fletch-"$version"-cp311-abi3-manylinux*_"$machine".whl)
    check "symbols of every wheel" python3 tools/release/symbols.py "$dist"/*.whl
    "$(find_python)" -m venv "$venv"
    check "pip install of $(basename "$wheel")" "$venv/bin/pip" -q install "$wheel"
    check "its program" vectors "tiny minilm" "$work/models" "$venv/bin/fletch"
    ask_python "$work" "$work/models" "tiny minilm" >"$work/ask.py"
    check "its module" "$venv/bin/python" "$work/ask.py"
    if make_root bookworm arm64; then
        (cd "$root" && unzip -q "$dist"/fletch-"$version"-cp311-abi3-manylinux*_aarch64.whl -d wheel)
        chmod +x "$root/wheel/fletch-$version.data/scripts/fletch"
        cp "$work/texts.jsonl" "$work"/*.raw "$root/"
        ask_python "" /models tiny >"$root/ask.py"
        check "the program of the wheel for aarch64, emulated" vectors tiny /models "${inside[@]}" "/wheel/fletch-$version.data/scripts/fletch"
        check "numpy on bookworm arm64" "${inside[@]}" sh -c "apt-get -q update && $apt install --no-install-recommends python3-numpy"
        check "the module of the wheel for aarch64, emulated" "${inside[@]}" env PYTHONPATH=/wheel python3 /ask.py
    else
        skip "the wheel for aarch64" "$why"
    fi
    local python
    if ! python=$(tools/release/musl_python.sh 2>"$work/why"); then
        skip "the wheel for musl" "$(sed -n 's/^failed: //p' "$work/why")"
        return
    fi
    # Debian 12's musl, 1.2.3, cannot relocate what newer wheels of numpy bring (DT_RELR); 1.26 is the oldest that fletch takes.
    check "numpy for musl" "$venv/bin/pip" -q download -d "$work/numpy" --only-binary :all: \
        --platform "musllinux_1_1_$machine" --python-version 3.11 numpy==1.26.4
    # shellcheck disable=SC2086 # two words
    check "pip install of the wheel for musl" $python install --no-index --find-links "$work/numpy" --target "$work/musl" \
        "$(echo "$dist"/fletch-"$version"-cp311-abi3-musllinux*_"$machine".whl)"
    check "the program of the wheel for musl" vectors tiny "$work/models" "$work/musl/bin/fletch"
    check "the module of the wheel for musl" env PYTHONPATH="$work/musl" "${python%% *}" "$work/ask.py"
}

make_older() { # FILE: the package fletch as version 0.0.1, with a file more
    local tree=$work/older
    rm -rf "$tree"
    dpkg-deb -R "$dist/fletch_${version}_$(dpkg --print-architecture).deb" "$tree"
    sed -i 's/^Version: .*/Version: 0.0.1/' "$tree/DEBIAN/control"
    echo >"$tree/usr/share/doc/fletch/older"
    dpkg-deb --root-owner-group -b "$tree" "$1" >>"$log"
}

add_repository() { # ROOT: as docs/install.md says
    local trust=trusted=yes
    cp -r "$dist/apt" "$1/apt"
    if [ -f "$dist/fletch.asc" ]; then
        mkdir -p "$1/etc/apt/keyrings"
        cp "$dist/fletch.asc" "$1/etc/apt/keyrings/"
        trust=signed-by=/etc/apt/keyrings/fletch.asc
    fi
    echo "deb [$trust] file:/apt stable main" >"$1/etc/apt/sources.list.d/fletch.list"
}

no_trace() { # ROOT: of packages
    test -z "$(find "$1/usr" "$1/etc" "$1/var/lib" "$1/lib" -path "$1/var/lib/apt" -prune \
        -o -name '*fletch*' ! -name fletch.list ! -name fletch.asc -print)"
}

check_deb() {
    local suite
    for suite in bookworm trixie noble; do
        make_root $suite || { skip "packages on $suite" "$why"; continue; }
        make_older "$root/older.deb"
        check "an older package on $suite" chroot "$root" sh -c "apt-get -q update && $apt install --no-install-recommends /older.deb"
        add_repository "$root"
        check "apt-get install on $suite" chroot "$root" sh -c "apt-get -q update &&
            $apt install --no-install-recommends fletch libfletch-dev python3-fletch gcc libc6-dev pkgconf"
        check "what only the older one had is gone on $suite" test ! -e "$root/usr/share/doc/fletch/older"
        check "its program on $suite" vectors "tiny minilm" /models chroot "$root" fletch
        cp "$work/texts.jsonl" "$work"/*.raw "$root/"
        ask_python "" /models "tiny minilm" >"$root/ask.py"
        check "python3-fletch on $suite" chroot "$root" python3 /ask.py
        check "libfletch-dev on $suite" chroot "$root" sh -c \
            "cc -x c - -o /version \$(pkg-config --cflags --libs fletch) <<-END && /version | grep -x $version
		#include <fletch.h>
		#include <stdio.h>
		int main(void) { puts(fletch_version()); return 0; }
		END"
        check "purge on $suite" chroot "$root" sh -c "$apt purge fletch libfletch-dev libfletch0 python3-fletch"
        check "nothing is left on $suite" no_trace "$root"
    done
    make_root bookworm arm64 || { skip "packages for arm64" "$why"; return; }
    add_repository "$root"
    cp "$work/texts.jsonl" "$work"/*.raw "$root/"
    ask_python "" /models tiny >"$root/ask.py"
    check "apt-get install on bookworm arm64" "${inside[@]}" sh -c \
        "apt-get -q update && $apt install --no-install-recommends fletch libfletch-dev python3-fletch"
    check "its program, emulated" vectors tiny /models "${inside[@]}" fletch
    check "python3-fletch, emulated" "${inside[@]}" python3 /ask.py
    check "purge on bookworm arm64" "${inside[@]}" sh -c "$apt purge fletch libfletch-dev libfletch0 python3-fletch"
    check "nothing is left of them" no_trace "$root"
}

unpack_image() { # ARCHITECTURE FOLDER: the layer that the index names for it
    mkdir -p "$2/layout" "$2/root"
    tar xf "$dist/fletch-$version-oci.tar" -C "$2/layout"
    python3 - "$1" "$2/layout" >"$2/layer" <<-'END'
	import json, pathlib, sys
	layout = pathlib.Path(sys.argv[2])
	blob = lambda one: layout / "blobs" / one["digest"].replace(":", "/")
	index = json.loads((layout / "index.json").read_text())["manifests"][0]
	manifest = next(one for one in json.loads(blob(index).read_text())["manifests"] if one["platform"]["architecture"] == sys.argv[1])
	manifest = json.loads(blob(manifest).read_text())
	assert json.loads(blob(manifest["config"]).read_text())["config"]["User"] == "65532"
	print(blob(manifest["layers"][0]))
	END
    tar xzf "$(cat "$2/layer")" -C "$2/root"
    cp -r "$work/models/." "$2/root/models/"
}

serve_image() { # ROOT: as its user, with a key, until the health check says yes
    local process tries=120 status=1
    local inside=(chroot --userspec=65532:65532 "$1" /usr/bin/fletch)
    export HOME=/models FLETCH_SERVER_HOST=127.0.0.1 FLETCH_SERVER_PORT=9931 FLETCH_SERVER_API_KEY_FILE=/keys/keys
    echo "a-key-of-the-check-0123456789" >"$1/keys/keys"
    "${inside[@]}" serve -m /models/tiny &
    process=$!
    until "${inside[@]}" health; do
        [ $((tries -= 1)) -gt 0 ] || break
        sleep 0.5
    done
    [ $tries -eq 0 ] || status=0
    kill $process
    wait $process && return $status
}

check_image() {
    local bytes
    bytes=$(stat -c %s "$dist/fletch-$version-oci.tar")
    check "an image for two processors of $bytes bytes, at most 12 MB" test "$bytes" -le 12000000
    check "unpack amd64" unpack_image amd64 "$work/image"
    check "its vectors, as user 65532" vectors "tiny minilm" /models chroot --userspec=65532:65532 "$work/image/root" /usr/bin/fletch
    check "its server and its health check" serve_image "$work/image/root"
    command -v qemu-aarch64-static >/dev/null || { skip "the image for arm64" "no qemu-aarch64-static"; return; }
    check "unpack arm64" unpack_image arm64 "$work/image-arm"
    cp "$(command -v qemu-aarch64-static)" "$work/image-arm/root/qemu"
    check "its vectors, emulated" vectors tiny /models chroot --userspec=65532:65532 "$work/image-arm/root" /qemu -cpu max /usr/bin/fletch
}

check_windows() {
    local program
    command -v wine >/dev/null || { skip "the zip for Windows" "no wine"; return; }
    export WINEPREFIX=$work/wine WINEDEBUG=-all
    program=$work/fletch-$version-windows-x86_64/fletch.exe
    TIMEFORMAT="   from nothing to the first vector with a new prefix of wine: %R s; no model was downloaded"
    time {
        (cd "$work" && unzip -q "$dist/fletch-$version-windows-x86_64.zip")
        check "its first vector, by wine" wine "$program" embed -m "$work/models/tiny" --format raw hello -o "$work/first"
    }
    check "the zip for Windows, by wine" vectors "tiny minilm" "$work/models" wine "$program"
    check "its report names no home" no_home wine "$program"
    check "its server, by wine" serve_console "$program"
    check "its service, by wine" serve_service "$program"
    mkdir -p "$work/windows"
    (cd "$work/windows" && unzip -q "$dist/fletch-$version-cp311-abi3-win_amd64.whl")
    check "the program of the wheel for Windows" cmp "$program" "$work/windows/fletch-$version.data/scripts/fletch.exe"
    check "the module of the wheel for Windows is loaded" load_module "$work/windows/fletch/_fletch.pyd"
    skip "what the module of the wheel for Windows does" "there is no Python for Windows here"
}

no_home() { # COMMAND...: without a model, which it would look for at home
    "$@" doctor --report --offline -m low >"$work/report" || true
    grep -q '~/.cache/huggingface' "$work/report" && ! grep -qi '[a-z]:[/\\]users' "$work/report"
}

answers() { # PORT: the server's health and the tiny model's first vector
    local tries=240
    until curl -fsS "127.0.0.1:$1/health"; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.5
    done
    curl -fsS "127.0.0.1:$1/embed" -H 'content-type: application/json' -d '{"inputs": "hello"}' >"$work/served.json"
    build/fletch embed -m "$work/models/tiny" --format raw hello >"$work/hello.raw"
    python3 - "$work/served.json" "$work/hello.raw" <<-'END'
	import json, struct, sys
	told, raw = json.load(open(sys.argv[1]))[0], open(sys.argv[2], "rb").read()
	assert struct.pack(f"<{len(told)}f", *told) == raw
	END
}

serve_console() { # PROGRAM: SIGINT is Ctrl-C to a program of wine
    wine "$1" serve -m "$work/models/tiny" --server-port 9933 &
    local process=$! status=0
    answers 9933 || status=1
    kill -INT $process
    wait $process && return $status
}

serve_service() { # PROGRAM
    local status=0 tries=120
    sleep 600 | wine cmd & # wine ends its services when nothing else of it runs
    local other=$!
    wine sc create fletch binPath= "\"$(wine winepath -w "$1" | tr -d '\r')\" serve -m \"$(wine winepath -w "$work/models/tiny" | tr -d '\r')\" --server-port 9934"
    wine sc start fletch
    answers 9934 || status=1
    wine sc stop fletch || status=1
    while curl -s 127.0.0.1:9934/live; do
        [ $((tries -= 1)) -gt 0 ] || break
        sleep 0.5
    done
    wine sc delete fletch
    kill $other
    [ $tries -gt 0 ] && return $status
}

# Every import of the module is found, in Windows and in a python3.dll that has what the module takes and does nothing.
load_module() { # FILE
    local folder=$work/load
    mkdir -p "$folder"
    cp "$1" "$folder/"
    objdump -p "$1" | awk '/DLL Name: /{on = $3 == "python3.dll"} on && NF == 3 && $3 ~ /^_?Py/ {print $3}' |
        sed 's/.*/void *&;/' >"$folder/python3.c"
    x86_64-w64-mingw32-gcc -shared -Wl,--export-all-symbols -o "$folder/python3.dll" "$folder/python3.c"
    cat >"$folder/load.c" <<-'END'
	#include <stdio.h>
	#include <windows.h>
	int main(void) {
	    HMODULE module = LoadLibraryA("_fletch.pyd");
	    printf("error %lu, door %p\n", GetLastError(), module != NULL ? (void *)GetProcAddress(module, "PyInit__fletch") : NULL);
	    return module == NULL || GetProcAddress(module, "PyInit__fletch") == NULL;
	}
	END
    x86_64-w64-mingw32-gcc -o "$folder/load.exe" "$folder/load.c"
    (cd "$folder" && wine load.exe)
}

check_macos() {
    local machine
    for machine in arm64 x86_64; do
        unpack_program macos-$machine "$work/macos-$machine"
        check "Mach-O for $machine" eval "file '$work/macos-$machine/bin/fletch' | grep -q 'Mach-O 64-bit.*$machine'"
    done
    # LC_CODE_SIGNATURE is load command 0x1d: without one the kernel of a Mac on ARM ends the program at once.
    check "a signature on ARM" python3 -c "import struct, sys
data, at = open('$work/macos-arm64/bin/fletch', 'rb').read(), 32
commands = []
for _ in range(struct.unpack_from('<I', data, 16)[0]):
    kind, size = struct.unpack_from('<II', data, at)
    commands.append(kind)
    at += size
sys.exit(0x1d not in commands)"
}

check_manifests() {
    check "the formula is Ruby" ruby -c "$dist/fletch.rb"
    check "the derivation is Nix" nix-instantiate --parse "$dist/fletch.nix"
    check "the manifest for scoop is JSON" python3 -m json.tool "$dist/fletch.scoop.json"
    check "the manifest for winget is YAML" ruby -ryaml -e 'YAML.load_file(ARGV[0]).fetch("Installers")[0].fetch("InstallerSha256")' \
        "$dist/fletch.winget.yaml"
    check "the service of macOS is a property list" python3 -c "import plistlib
plistlib.load(open('deploy/launchd/fletch.plist', 'rb'))"
}

for part in "${parts[@]}"; do
    declare -F "check_$part" >/dev/null || stop "unknown part '$part'" "sed -n 3,20p tools/release/check.sh"
    say "$part"
    "check_$part"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] || stop "$failed checks" "all of the output: build-release/check.log"
