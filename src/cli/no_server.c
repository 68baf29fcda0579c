/* SPDX-License-Identifier: Apache-2.0 */
/* no_server.c - `fletch serve` of a build without the server (FLETCH_SERVER=OFF), in place of cmd_serve.c. */
#include "cli/cli.h"

fl_exit fl_cmd_serve(fl_cli *cli) {
    return fl_cli_usage(cli,
                        "this build has no server (FLETCH_SERVER=OFF); it runs on Linux alone");
}
