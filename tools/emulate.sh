#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# emulate.sh aarch64|plain|avx512 - kernel conformance for a processor that this machine is not.
# aarch64: cross-compiled, every NEON table under qemu-user; minutes; part of make check-full.
# plain:   AVX-512, VNNI and AMX with their intrinsics in plain C (SIMDe): what is written, not what the
#          instructions do; a minute, in make check-full.
# avx512:  under Bochs, which emulates a whole PC with AVX-512 (qemu-user has no AVX-512): a Debian kernel
#          boots from a CD image with fl-kernels as its only program; a quarter of an hour. The table avx512
#          alone: Linux does not come up on its processors with VNNI, and Bochs 2.7 has no AMX. By hand only.
# Writes "passed failed skipped" to build/tally/emulate-NAME for check.sh.
. "$(dirname "$0")/say.sh"

name=${1:?aarch64, plain or avx512}
folder=build-$name
log=$folder/kernels.log
mkdir -p "$folder" build/tally
echo 0 1 0 >build/tally/emulate-"$name" # until proven otherwise

need() { # TOOL PACKAGES
    command -v "$1" >/dev/null || stop "$1 is not installed" "apt-get install $2"
}

build_alone() { # CMAKE ARGUMENTS: fl-kernels and init alone, static
    cmake -S tests/kernels/alone -B "$folder" -G Ninja "$@" >"$folder"/configure.log 2>&1 ||
        stop "cmake could not configure" "all of its output: $folder/configure.log"
    ninja -C "$folder" --quiet fl-kernels init || stop "the $name build"
}

run_aarch64() {
    need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    need qemu-aarch64 qemu-user
    build_alone -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc
    qemu-aarch64 -cpu max "$folder"/fl-kernels test >"$log" || true
}

run_plain() {
    [ -f /usr/include/simde/x86/avx512.h ] || stop "SIMDe is not installed" "apt-get install libsimde-dev"
    cmake -S tests/kernels/alone -B "$folder" -G Ninja -DFL_PLAIN=ON >"$folder"/configure.log 2>&1 ||
        stop "cmake could not configure" "all of its output: $folder/configure.log"
    ninja -C "$folder" --quiet fl-kernels-plain || stop "the $name build"
    "$folder"/fl-kernels-plain test >"$log" || true
}

# The newest kernel for clouds: small, with everything that is needed built in.
get_kernel() {
    [ ! -f "$folder"/vmlinuz ] || return 0
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p')
    (cd "$folder" && apt-get download -q "$package" >/dev/null 2>&1) ||
        stop "apt-get download $package" "run: apt-get update"
    dpkg-deb --fsys-tarfile "$folder"/"$package"_*.deb | tar -xO --wildcards './boot/vmlinuz-*' >"$folder"/vmlinuz
}

make_cd() {
    local cd=$folder/cd root=$folder/root
    rm -rf "$cd" "$root"
    mkdir -p "$cd"/isolinux "$root"/proc "$root"/dev
    cp "$folder"/init "$folder"/fl-kernels "$root"/
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$cd"/initrd
    cp "$folder"/vmlinuz "$cd"/
    cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$cd"/isolinux/
    local options="mitigations=off nokaslr nopcid nopku lsm=yama nosmp noxsaves clearcpuid=xsavec,xsaves"
    local ops="gemm attention layer_norm rms_norm rotate activation gating gemm_q16 gemm_bf16" # the others are those of avx2
    # Bochs gives sizes of compacted XSAVE areas and protection keys that Linux finds inconsistent.
    cat >"$cd"/isolinux/isolinux.cfg <<-END
	DEFAULT fl
	TIMEOUT 1
	LABEL fl
	 KERNEL /vmlinuz
	 APPEND initrd=/initrd console=ttyS0 $options -- run avx512 $ops
	END
    xorriso -as mkisofs -quiet -o "$folder"/cd.iso -b isolinux/isolinux.bin -c isolinux/boot.cat \
        -no-emul-boot -boot-load-size 4 -boot-info-table "$cd" 2>/dev/null
}

run_avx512() {
    need bochs "bochs bochsbios vgabios"
    need xorriso "xorriso isolinux syslinux-common cpio"
    build_alone
    get_kernel
    make_cd
    cat >"$folder"/bochsrc <<-END
	megs: 256
	cpu: model=corei7_skylake_x, count=1, ips=50000000, reset_on_triple_fault=0
	romimage: file=/usr/share/bochs/BIOS-bochs-latest
	vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
	ata0-master: type=cdrom, path=$ROOT/$folder/cd.iso, status=inserted
	boot: cdrom
	com1: enabled=1, mode=file, dev=$ROOT/$folder/serial.txt
	display_library: rfb, options="timeout=0"
	log: $ROOT/$folder/bochs.log
	panic: action=fatal
	END
    # A screen that nobody need watch (VNC, port 5900): the one in a terminal hangs once it was stopped.
    echo c >"$folder"/bochs.go
    rm -f "$folder"/serial.txt
    timeout 3600 bochs -q -f "$folder"/bochsrc -rc "$folder"/bochs.go >"$folder"/screen.txt 2>&1 </dev/null || true
    tr -d '\r' <"$folder"/serial.txt | grep -aE '^(ok|FAIL|skipped|fl-kernels)' >"$log" || true
    grep -q '^fl-kernels: exit status 0' "$log" || echo "FAIL the emulated machine did not end well" >>"$log"
}

case $name in
aarch64 | plain | avx512) say "emulate: kernels for $name" && "run_$name" ;;
*) stop "unknown machine '$name'" "tools/emulate.sh aarch64, plain or avx512" ;;
esac
passed=$(grep -c '^ok' "$log" || true) failed=$(grep -c '^FAIL' "$log" || true)
echo "$passed $failed 0" >build/tally/emulate-"$name"
cat "$log" >&2
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] || stop "kernels for $name" "all of the output: $log"
