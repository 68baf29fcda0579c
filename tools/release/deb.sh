#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh - Debian packages of this machine's architecture from the committed sources and deploy/debian, looked at by
# lintian, into DIST (build-release/dist), and an apt repository of them, DIST/apt, signed with FLETCH_APT_KEY (a key of gpg;
# its public half: DIST/fletch.asc) where that is given. They run on the Debian that made them and every later one.
. "$(dirname "$0")/../say.sh"

dist=${DIST:-$ROOT/build-release/dist}
version=$(sed -n 's/.*FLETCH_VERSION[[:space:]]*"\(.*\)"/\1/p' include/fletch.h)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$ROOT/build-release/deb
log=$ROOT/build-release/deb.log
for tool in dpkg-buildpackage:dpkg-dev dh:debhelper dh_python3:dh-python lintian:lintian reprepro:reprepro; do
    command -v ${tool%:*} >/dev/null || stop "${tool%:*} is not installed" "apt-get install ${tool#*:}"
done

rm -rf "$work"
mkdir -p "$work/fletch-$version" "$dist"
git archive HEAD | tar x -C "$work/fletch-$version"
cd "$work/fletch-$version"
cp -r deploy/debian debian
cat >debian/changelog <<-END
	fletch ($version) unstable; urgency=medium

	  * See CHANGELOG.md.

	 -- The fletch authors <fletch@localhost>  $(date -R -u -d "@$epoch")
END
say "deb: dpkg-buildpackage"
SOURCE_DATE_EPOCH=$epoch dpkg-buildpackage -b -us -uc >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    stop "dpkg-buildpackage" "all of its output: $log"
}
cd "$work"
say "deb: lintian"
# Not Debian's own package: no bug closed by it, nobody to write to.
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog,bad-distribution-in-changes-file \
    ./*.changes >lintian.log 2>&1 || { cat lintian.log >&2; stop "lintian" "$work/lintian.log"; }
note "$(grep -c '^W:' lintian.log || true) warnings of lintian"
cp ./*.deb "$dist"/

say "deb: apt repository"
rm -rf "$dist"/apt
mkdir -p "$dist"/apt/conf
cat >"$dist"/apt/conf/distributions <<END
Codename: stable
Components: main
Architectures: amd64 arm64
Description: fletch
${FLETCH_APT_KEY:+SignWith: $FLETCH_APT_KEY}
END
for package in "$dist"/*.deb; do
    [[ $package == *-dbgsym* ]] || reprepro -b "$dist"/apt includedeb stable "$package" >>"$log" 2>&1 ||
        stop "reprepro" "all of its output: $log"
done
[ -z "${FLETCH_APT_KEY:-}" ] || gpg --armor --export "$FLETCH_APT_KEY" >"$dist"/fletch.asc
rm -rf "$dist"/apt/db "$dist"/apt/conf "$dist"/*-dbgsym*.deb
