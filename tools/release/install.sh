#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh - fletch @VERSION@ from @URL@:
#   curl -fsSL @URL@/install.sh | sh
#   curl -fsSL @URL@/install.sh | sh -s -- --uninstall
# Takes the archive for this system, checks it against SHA256SUMS and that against its signature, and lays its files
# into FLETCH_PREFIX: /usr/local for root, ~/.local for anybody else. --uninstall removes these files and no others.
# FLETCH_URL takes the release from elsewhere. Needs curl or wget, tar, sha256sum or shasum; minisign or openssl 3 for
# the signature.
set -eu

url=${FLETCH_URL:-@URL@}
key=${FLETCH_PUBLIC_KEY-@KEY@}
version=@VERSION@
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
prefix=${FLETCH_PREFIX:-$prefix}
list=$prefix/share/fletch/installed

say()  { printf 'fletch: %s\n' "$*" >&2; }
stop() { say "$1"; [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# The list has the files, and with a / at the end the folders that were not there before.
remove() { # LIST: of these whatever is there, and the folders that are empty then
    grep -v '/$' "$1" | while read -r file; do rm -f "$prefix/$file" "$prefix/$file.new"; done
    grep '/$' "$1" | sort -r | while read -r folder; do rmdir "$prefix/$folder" 2>/dev/null || true; done
}

uninstall() {
    [ -f "$list" ] || stop "nothing is installed in $prefix" "FLETCH_PREFIX names another folder"
    cp "$list" "$work/installed"
    rm -f "$list"
    remove "$work/installed"
    say "removed from $prefix. Models stay in the cache of Hugging Face (~/.cache/huggingface), which others share"
}

make_folder() { # below the prefix, and the folders above it
    [ ! -d "$prefix/$1" ] || return 0
    case $1 in */*) make_folder "${1%/*}" ;; esac
    mkdir "$prefix/$1"
    echo "$1/" >>"$list"
}

get() { # NAME
    if have curl; then curl -fsSL --retry 3 -o "$work/$1" "$url/$1"
    elif have wget; then wget -q -O "$work/$1" "$url/$1"
    else stop "neither curl nor wget is here" "install one of them"; fi ||
        stop "$url/$1 cannot be had" "look at the network, or set FLETCH_URL"
}

# minisign's signature of SHA256SUMS: Ed25519 over its BLAKE2b-512, which openssl knows, too.
verify_by_openssl() {
    raw() { printf '%s' "$1" | openssl base64 -d -A; }
    signature=$(sed -n 2p "$work/SHA256SUMS.minisig")
    [ "$(raw "$key" | dd bs=1 skip=2 count=8 2>/dev/null | od -An -tx1)" = \
      "$(raw "$signature" | dd bs=1 skip=2 count=8 2>/dev/null | od -An -tx1)" ] || return 1
    { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; raw "$key" | dd bs=1 skip=10 2>/dev/null; } >"$work/key.der"
    raw "$signature" | dd bs=1 skip=10 2>/dev/null >"$work/signature"
    openssl dgst -blake2b512 -binary -out "$work/hash" "$work/SHA256SUMS"
    openssl pkeyutl -verify -pubin -inkey "$work/key.der" -keyform DER -rawin -in "$work/hash" \
        -sigfile "$work/signature" >/dev/null 2>&1
}

verify() { # ARCHIVE
    get SHA256SUMS
    if [ -n "$key" ]; then
        get SHA256SUMS.minisig
        if have minisign; then
            minisign -Vqm "$work/SHA256SUMS" -P "$key" >/dev/null 2>&1 || stop "the signature of SHA256SUMS is not the publisher's"
        elif have openssl && openssl pkeyutl -help 2>&1 | grep -q rawin; then
            verify_by_openssl || stop "the signature of SHA256SUMS is not the publisher's"
        else
            say "neither minisign nor openssl 3 is here: the signature was not looked at, the checksum is"
        fi
    fi
    sum=$( (cd "$work" && if have sha256sum; then sha256sum "$1"; else shasum -a 256 "$1"; fi) | cut -d' ' -f1)
    grep -qx "$sum  $1" "$work/SHA256SUMS" || stop "$1 is not the file that was released: its SHA-256 is $sum"
}

# Each name is in the list before its file or folder is there, so --uninstall clears up after a try that broke off; what an
# earlier version had and this has not goes last.
lay_down() { # FOLDER
    mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] ||
        stop "$prefix cannot be written" "run it as root, or let FLETCH_PREFIX name a folder of yours"
    (cd "$1" && find . -type f | sed 's|^\./||' | sort) >"$work/files"
    for folder in share share/fletch; do
        [ -d "$prefix/$folder" ] || echo "$folder/"
    done >"$work/list"
    [ ! -f "$list" ] || cat "$list" >>"$work/list"
    mkdir -p "$prefix/share/fletch"
    cat "$work/list" "$work/files" >"$list"
    while read -r file; do
        make_folder "${file%/*}"
        case $file in
        lib/systemd/* | *.plist) sed "s|/usr/local/bin|$prefix/bin|" "$1/$file" >"$prefix/$file.new" ;;
        *) cp "$1/$file" "$prefix/$file.new" ;;
        esac
        mv -f "$prefix/$file.new" "$prefix/$file" # a program that runs keeps its file
    done <"$work/files"
    sort -u "$list" >"$work/list"
    grep -vxFf "$work/files" "$work/list" >"$work/old" || true
    remove "$work/old"
    while read -r name; do
        [ ! -e "$prefix/$name" ] || echo "$name"
    done <"$work/list" >"$list"
}

main() {
    umask 022 # root's own may hide the program from everybody else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    case ${1:-} in
    --uninstall) uninstall; exit 0 ;;
    '') ;;
    *) say "unknown argument '$1'"; say "usage: install.sh [--uninstall]"; exit 2 ;;
    esac
    case $(uname -s)-$(uname -m) in
    Linux-x86_64) system=linux-x86_64 ;;
    Linux-aarch64 | Linux-arm64) system=linux-aarch64 ;;
    Darwin-arm64) system=macos-arm64 ;;
    Darwin-x86_64) system=macos-x86_64 ;;
    *) stop "there is no program for $(uname -s) on $(uname -m)" "it can be compiled: see README.md in the sources" ;;
    esac
    archive=fletch-$version-$system
    get "$archive.tar.gz"
    verify "$archive.tar.gz"
    tar xzf "$work/$archive.tar.gz" -C "$work"
    lay_down "$work/$archive"
    say "fletch $version is in $prefix/bin"
    case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) say "your PATH does not have it: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

main "$@" # in the last line: of a download that broke off nothing runs
