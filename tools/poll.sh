#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# poll.sh [ARGUMENTS of pytest] - the tests of the server (or those named) with the loop that macOS and Windows have
# (src/server/loop_poll.c) in place of Linux' own, ten minutes. What installs a build is left out.
. "$(dirname "$0")/say.sh"

[ $# -gt 0 ] || set -- tests/server --ignore=tests/server/test_deploy.py
tools/build.sh release fletch_poll fletch_faulty_poll
tools/venv.sh
tools/get_model.sh medium >/dev/null
test_environment
say "pytest: the server by poll(2)"
FLETCH_BUILD=$ROOT/build/poll FLETCH_BIN=$ROOT/build/poll/fletch \
    exec "$VENV"/bin/python -m pytest -q -p no:cacheprovider "$@"
