#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh - program, libraries, header, pkg-config file, CMake package, man pages and completions
# into $DESTDIR$PREFIX (PREFIX default /usr/local). Nothing is built here; `make install` built before.
. "$(dirname "$0")/say.sh"

prefix=${PREFIX:-/usr/local}
say "install: into ${DESTDIR:-}$prefix"
DESTDIR=${DESTDIR:-} cmake --install build --prefix "$prefix" >build/install.log ||
    stop "cmake --install (output: build/install.log)" \
         "for a folder that is not yours: sudo make install; or make install PREFIX=\$HOME/.local"
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
    ldconfig
fi
note "$(grep -c . build/install_manifest.txt) files; the list is in build/install_manifest.txt"
case $prefix in
/usr | /usr/local) ;;
*)
    pkgconfig=$(dirname "$(grep '/fletch\.pc$' build/install_manifest.txt)")
    note "pkg-config and the loader do not look there by themselves:"
    note "export PKG_CONFIG_PATH=$pkgconfig LD_LIBRARY_PATH=$(dirname "$pkgconfig")"
    ;;
esac
