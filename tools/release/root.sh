#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# root.sh SUITE - a bare root of a release of Debian or Ubuntu (bullseye, bookworm, trixie, noble), as debootstrap makes it,
# once, in build-release/roots; prints where. Root only. Whoever works in it takes a copy.
. "$(dirname "$0")/../say.sh"

suite=${1:?bullseye, bookworm, trixie or noble}
kept=$ROOT/build-release/roots/$suite from=() keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
if [ "$suite" = noble ]; then # whose script an older debootstrap has under another name; all of Ubuntu's are one
    from=(http://archive.ubuntu.com/ubuntu gutsy)
    [ -f $keys ] || stop "there is no $keys to trust its archive by"
fi
if [ ! -f "$kept/.whole" ]; then
    command -v debootstrap >/dev/null || stop "debootstrap is not installed" "apt-get install debootstrap"
    rm -rf "$kept"
    mkdir -p "$kept"
    debootstrap --variant=minbase --include=curl,ca-certificates "$suite" "$kept" "${from[@]}" >"$kept.log" 2>&1 ||
        stop "debootstrap could not make the root of $suite" "all of its output: $kept.log"
    touch "$kept/.whole"
fi
echo "$kept"
