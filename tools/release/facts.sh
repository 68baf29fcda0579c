# SPDX-License-Identifier: Apache-2.0
# facts.sh - what the scripts of this folder share; sourced, never run. say.sh, and
#   version             of fletch
#   DIST                the folder of the release, build-release/dist
#   SOURCE_DATE_EPOCH   the commit's hour, which is that of every file made of it
# shellcheck shell=bash
# shellcheck disable=SC2034 # version is theirs
. "$(dirname "${BASH_SOURCE[0]}")/../say.sh"

version=$(sed -n 's/.*FLETCH_VERSION[[:space:]]*"\(.*\)"/\1/p' include/fletch.h)
[[ ${DIST:-} == "$ROOT"/build-release/* ]] || DIST=$ROOT/build-release/dist # it is removed: no folder of anybody else's
export DIST
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
