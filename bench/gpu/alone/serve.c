/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c - no server, for a build with FLETCH_MINIMAL=ON on a machine without SQLite
 * (see bench/gpu/README.md). */
#include "cli/cli.h"

fl_exit fl_cmd_serve(fl_cli *cli) {
    return fl_cli_usage(cli, "this build has no server (FLETCH_MINIMAL)");
}
