#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# release.sh - every artefact of a release into build-release/dist (docs/install.md says which): programs and modules for
# the targets of targets.tsv, archives, wheels, sdist, OCI image, Debian packages, and what describe.py says of them.
# The same commit gives the same bytes: its time is SOURCE_DATE_EPOCH.
#   FLETCH_URL         where the files will be found; it stands in install.sh, formula and manifests
#   FLETCH_MINISIGN    the text of a secret key of minisign, without a password (minisign -G -W): SHA256SUMS.minisig, and its
#                      public half in install.sh
#   FLETCH_APT_KEY     the key of gpg that signs the apt repository
. "$(dirname "$0")/facts.sh"

git diff --quiet HEAD || note "uncommitted changes go into it: these are not the bytes of $(git rev-parse --short HEAD)"
mkdir -p build-release
rm -rf "$DIST"
mkdir "$DIST"

tools/build.sh release make_docs man fletch
# shellcheck disable=SC2013 # a target is a word
for target in $(grep -v '^#' tools/release/targets.tsv | cut -f1); do
    tools/release/build.sh "$target"
done

say "archives"
python3 tools/release/pack.py archives

say "sdist and wheels"
venv=$ROOT/build-release/venv
log=$ROOT/build-release/sdist.log
[ -x "$venv"/bin/python ] || "$(find_python)" -m venv "$venv"
if ! { "$venv"/bin/pip -q install build==1.6.1 scikit-build-core==1.1.2 &&
    "$venv"/bin/python -m build --no-isolation --sdist --outdir "$DIST" "$ROOT"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    stop "the sdist" "all of its output: $log"
fi
python3 tools/release/pack.py wheels "$DIST/fletch-$version.tar.gz"
python3 tools/release/symbols.py "$DIST"/*.whl

say "image"
python3 tools/release/pack.py image

tools/release/deb.sh

say "SBOM, manifests, install.sh, provenance, SHA256SUMS"
if [ -n "${FLETCH_MINISIGN:-}" ]; then
    command -v minisign >/dev/null || stop "minisign is not installed" "apt-get install minisign"
    keys=$(mktemp -d)
    trap 'rm -rf "$keys"' EXIT
    printf '%s\n' "$FLETCH_MINISIGN" >"$keys/secret"
    minisign -R -W -s "$keys/secret" -p "$keys/public" >/dev/null || stop "FLETCH_MINISIGN is no secret key" "minisign -G -W"
    FLETCH_PUBLIC_KEY=$(sed -n 2p "$keys/public")
    export FLETCH_PUBLIC_KEY
fi
python3 tools/release/describe.py
if [ -n "${FLETCH_MINISIGN:-}" ]; then
    minisign -S -W -s "$keys/secret" -m "$DIST"/SHA256SUMS -t "fletch $version" >/dev/null || stop "minisign could not sign"
fi
note "$(find "$DIST" -maxdepth 1 -type f | wc -l) files in build-release/dist"
