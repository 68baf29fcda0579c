#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [build|check|full|release] [tell] - install the Debian packages that are missing, and only those; with tell
# only say which they are, and fail when there are any.
# build: what `make demo` needs (the default). check: what `make check` and `make tidy` need as well. full: a
# cross compiler and emulators for `make check-full`. release: what `make release` and `make release-check` need.
# Where nothing is missing it neither needs root nor touches the network. Written for Debian 12 and its kin.
. "$(dirname "$0")/say.sh"

profile=${1:-build}
packages=(gcc libc6-dev cmake ninja-build pkg-config libcurl4-openssl-dev libpcre2-dev
          libsqlite3-dev zlib1g-dev libzstd-dev
          python3 python3-venv ca-certificates)
case $profile in
build) why="to build fletch and fetch its model" ;;
check | full)
    why="to build fletch and run its tests"
    packages+=(g++ binutils python3-dev libcriterion-dev clang libclang-rt-14-dev clang-format clang-tidy cppcheck nginx
               abigail-tools)
    [ "$profile" = check ] ||
        packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user libsimde-dev)
    ;;
release)
    why="to make a release and prove it"
    packages+=(python3-dev gcc-mingw-w64-x86-64-posix tcl dpkg-dev debhelper dh-python lintian minisign
               debootstrap busybox-static qemu-user-static gpg musl-tools wine wine64 ruby nix-bin unzip file curl
               ca-certificates) ;;
*) stop "unknown profile '$profile'" "tools/setup.sh build, check, full or release" ;;
esac

if ! command -v dpkg-query >/dev/null; then
    note "not a Debian-like system: nothing installed. Needed, under your system's names:"
    note "${packages[*]}"
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all ${#packages[@]} are installed"
    exit 0
fi

[ "${2:-}" != tell ] || stop "these packages are missing: ${missing[*]}" "run: make setup"

say "packages: installing ${#missing[@]} $why"
note "${missing[*]}"
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" = 0 ]; then
    as_root=()
elif command -v sudo >/dev/null; then
    as_root=(sudo)
    note "sudo may ask for your password"
else
    stop "these packages are missing, and you are neither root nor have sudo" \
         "ask an administrator to run: apt-get update && $command"
fi
mkdir -p build
log=$ROOT/build/setup.log
# apt-get, when who else holds its locks is done: unattended-upgrades does for minutes after a machine's start.
run_apt() {
    local status tries=360 part=$log.part told=''
    while true; do
        status=0
        "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >"$part" 2>&1 || status=$?
        cat "$part" >>"$log"
        if [ $status -eq 0 ] || ! grep -q 'Could not get lock' "$part" || [ $((tries -= 1)) -eq 0 ]; then
            rm -f "$part"
            return $status
        fi
        [ -n "$told" ] || note "another program installs packages; waiting for it: $(grep -m 1 'Could not get lock' "$part")"
        told=1
        sleep 5
    done
}
: >"$log"
run_apt update || note "apt-get update failed (see build/setup.log); trying with the lists at hand"
if ! run_apt install -y --no-install-recommends "${missing[@]}"; then
    tail -n 5 "$log" >&2
    stop "apt-get could not install them (all of its output: build/setup.log)" \
         "check the network and the package sources, then: ${as_root[*]} $command"
fi
note "done"
