#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# emulated.sh COMMAND ... - runs it where programs of ARM start as the machine's own do, by qemu-aarch64-static, also in a
# root that has no qemu. That holds in a user namespace of its own, with a binfmt_misc of its own (Linux 6.7 and later), and
# changes nothing of the machine. Root only; root in it is root, for all of the files.
. "$(dirname "$0")/../say.sh"

entry=/usr/lib/binfmt.d/qemu-aarch64.conf # for the kernel; F: the program is opened now, outside of any root
[ -f $entry ] || stop "there is no $entry" "apt-get install qemu-user-static"
export QEMU_CPU=max
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkfifo "$work/mapped"
# shellcheck disable=SC2016 # that shell's own
unshare --user --mount sh -ec '
    read -r word <"$0"
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null || { echo "this kernel has no binfmt_misc for a namespace" >&2 && exit 1; }
    cat '$entry' >/proc/sys/fs/binfmt_misc/register
    exec "$@"' "$work/mapped" "$@" <&0 &
process=$!
exec 3<>"$work/mapped" # does not wait for a reader, which may have failed
while [ "$(readlink /proc/$process/ns/user)" = "$(readlink /proc/self/ns/user)" ]; do sleep 0.05; done
for map in uid gid; do
    echo 0 0 4294967295 >/proc/$process/${map}_map
done
echo whole >&3
wait $process
