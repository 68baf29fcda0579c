#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh - Debian packages from the committed sources and deploy/debian, looked at by lintian, into DIST
# (build-release/dist), and an apt repository of them, DIST/apt, signed with FLETCH_APT_KEY (a key of gpg; its public half:
# DIST/fletch.asc) where that is given. This machine's: for the Debian that it has and every later one. arm64 on amd64:
# cross-compiled in a bare root of Debian 12, which root alone makes; anybody else leaves these out.
. "$(dirname "$0")/facts.sh"

work=$ROOT/build-release/deb
log=$ROOT/build-release/deb.log
for tool in dpkg-buildpackage:dpkg-dev dh:debhelper dh_python3:dh-python lintian:lintian; do
    command -v ${tool%:*} >/dev/null || stop "${tool%:*} is not installed" "apt-get install ${tool#*:}"
done

lay_out() { # FOLDER: the committed sources, as dpkg-buildpackage wants them
    mkdir -p "$1"
    git -C "$ROOT" archive HEAD | tar x -C "$1"
    cp -r "$1/deploy/debian" "$1/debian"
    cat >"$1/debian/changelog" <<-END
	fletch ($version) unstable; urgency=medium

	  * See CHANGELOG.md.

	 -- The fletch authors <fletch@localhost>  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
	END
}

rm -rf "$work"
lay_out "$work/fletch-$version"
mkdir -p "$DIST"
cd "$work/fletch-$version"
say "deb: dpkg-buildpackage"
dpkg-buildpackage -b -us -uc >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    stop "dpkg-buildpackage" "all of its output: $log"
}
cd "$work"

# In a root of its own, where libraries of two architectures do not disturb the machine's.
cross_build() {
    local root=$work/root
    cp -a "$("$ROOT"/tools/release/root.sh bookworm)" "$root" && cp /etc/resolv.conf "$root/etc/" || return 1
    lay_out "$root/build/fletch-$version"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" DEBIAN_FRONTEND=noninteractive DEB_BUILD_PROFILES=cross \
        chroot "$root" sh -ec "
        dpkg --add-architecture arm64
        apt-get -q update
        apt-get -qy install --no-install-recommends crossbuild-essential-arm64 qemu-user-static
        cd /build/fletch-$version
        apt-get -qy build-dep --no-install-recommends -a arm64 ./
        dpkg-buildpackage -b -us -uc -a arm64" || return 1
    cp "$root"/build/*_* "$work"/ && rm -rf "$root"
}
if [ "$(dpkg --print-architecture)" = amd64 ]; then
    say "deb: dpkg-buildpackage for arm64"
    if [ "$(id -u)" != 0 ]; then
        note "left out: its root is made and entered by root alone"
    elif ! (cross_build) >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        stop "the packages for arm64" "all of its output: $log"
    fi
fi

say "deb: lintian"
# Not Debian's own package: no bug closed by it, nobody to write to.
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog,bad-distribution-in-changes-file \
    ./*.changes >lintian.log 2>&1 || { cat lintian.log >&2; stop "lintian" "$work/lintian.log"; }
rm -f ./*-dbgsym*.deb
cp ./*.deb "$DIST"/

say "deb: apt repository"
rm -rf "$DIST"/apt
mkdir -p "$DIST"/apt/pool
cp ./*.deb "$DIST"/apt/pool/
cd "$DIST"/apt
for architecture in amd64 arm64; do
    index=dists/stable/main/binary-$architecture
    mkdir -p "$index"
    dpkg-scanpackages --arch "$architecture" pool >"$index"/Packages 2>>"$log" || stop "dpkg-scanpackages" "all of its output: $log"
    gzip -9nk "$index"/Packages
done
cd dists/stable
{
    printf '%s\n' "Codename: stable" "Components: main" "Architectures: amd64 arm64" "Description: fletch" \
        "Date: $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %T UTC')" SHA256:
    find main -type f | LC_ALL=C sort | while read -r file; do
        echo " $(sha256sum <"$file" | cut -d' ' -f1) $(stat -c %s "$file") $file"
    done
} >Release
if [ -n "${FLETCH_APT_KEY:-}" ]; then
    # A signature of the commit's hour, for the same bytes; where the key is younger, of the key's: no reader takes an older one.
    hour=$(gpg --with-colons --list-keys "$FLETCH_APT_KEY" |
        awk -F: -v hour="$SOURCE_DATE_EPOCH" '/^[ps]ub:/ && $6 > hour {hour = $6} END {print hour}')
    gpg --batch --faked-system-time "$hour!" --local-user "$FLETCH_APT_KEY" --clearsign --output InRelease Release 2>>"$log" ||
        stop "gpg could not sign" "all of its output: $log"
    gpg --armor --export "$FLETCH_APT_KEY" >"$DIST"/fletch.asc
fi
