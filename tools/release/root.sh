#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# root.sh SUITE [arm64] - a bare root of a release of Debian or Ubuntu (bullseye, bookworm, trixie, noble), as debootstrap
# makes it, once, in build-release/roots; prints where. busybox is one of that program alone: the tools that Alpine begins
# with, and no libc. Root only. Whoever works in it takes a copy, and in that of arm64 works by emulated.sh.
. "$(dirname "$0")/../say.sh"

suite=${1:?bullseye, bookworm, trixie, noble or busybox}
kept=$ROOT/build-release/roots/$suite${2:+-$2} from=() options=()

# What Ubuntu's archive is signed with (2018, by its fingerprint), out of that archive's own package: Debian has none of it.
ubuntu_key() {
    local key=F6ECB3762474EDA9D21B7022871920D1991BC93C work=$kept.key
    rm -rf "$work"
    mkdir -p "$work"/{parts,lists/partial,cache,root}
    echo "deb [trusted=yes] ${from[0]} $suite main" >"$work"/parts/ubuntu.list
    local own=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work"/parts -o Dir::State::Lists="$work"/lists
               -o Dir::Cache="$work"/cache -o APT::Sandbox::User= -o Acquire::Retries=0)
    apt-get "${own[@]}" update && (cd "$work" && apt-get "${own[@]}" download ubuntu-keyring && dpkg-deb -x ubuntu-keyring_*.deb root) &&
        install -d -m 700 "$work"/gpg &&
        gpg --no-autostart --homedir "$work"/gpg --quiet --import "$work"/root/usr/share/keyrings/ubuntu-archive-keyring.gpg &&
        gpg --no-autostart --homedir "$work"/gpg --export $key >"$kept.gpg" && [ -s "$kept.gpg" ]
}

make_busybox() {
    command -v busybox >/dev/null || stop "busybox is not installed" "apt-get install busybox-static"
    rm -rf "$kept"
    mkdir -p "$kept"/{bin,dev,etc,tmp,usr/local}
    mknod -m 666 "$kept"/dev/null c 1 3
    cp "$(command -v busybox)" "$kept"/bin/
    chroot "$kept" /bin/busybox --install -s /bin
    touch "$kept/.whole"
}

[ "$suite" != busybox ] || [ -f "$kept/.whole" ] || make_busybox
if [ ! -f "$kept/.whole" ]; then
    command -v debootstrap >/dev/null || stop "debootstrap is not installed" "apt-get install debootstrap"
    rm -rf "$kept"
    mkdir -p "$kept"
    : >"$kept.log"
    if [ "$suite" = noble ]; then # whose script an older debootstrap has under another name; all of Ubuntu's are one
        from=(http://archive.ubuntu.com/ubuntu gutsy)
        ubuntu_key >>"$kept.log" 2>&1 || stop "Ubuntu's archive or its key cannot be had" "all of its output: $kept.log"
        options=(--keyring="$kept.gpg")
    fi
    if [ -n "${2:-}" ]; then # without certificates, whose set-up takes an emulator minutes
        options+=(--foreign --arch="$2" --include=curl)
    else
        options+=(--include=curl,ca-certificates)
    fi
    { # container=lxc: the second stage makes no devices, which such a namespace may not
        debootstrap --variant=minbase "${options[@]}" "$suite" "$kept" "${from[@]}" &&
            { [ -z "${2:-}" ] || container=lxc tools/release/emulated.sh chroot "$kept" /debootstrap/debootstrap --second-stage; }
    } >>"$kept.log" 2>&1 || stop "debootstrap could not make the root of $suite" "all of its output: $kept.log"
    touch "$kept/.whole"
fi
echo "$kept"
