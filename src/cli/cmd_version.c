/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_version.c - `fletch version`: the first thing a bug report needs.
 *
 * Role    Also behind --version. The first line stays "fletch X.Y.Z": scripts cut it.
 * Proof   tests/cli/test_cli_usage.py. */
#include "cli/cli.h"

fl_exit fl_cmd_version(fl_cli *cli) {
    fl_buf out = {0};
    if (cli->args.rest_count > 0)
        return fl_cli_usage(cli, "version takes no arguments");
    if (fl_cli_is(cli, FL_FLAG_FORMAT, "json")) {
        fl_buf_printf(&out, "{\"version\":\"%s\",\"compiler\":\"%s\",\"license\":\"Apache-2.0\"}\n",
                      fletch_version(), __VERSION__);
    } else {
        fl_buf_printf(&out, "fletch %s\n", fletch_version());
    }
    return fl_cli_print(&out);
}
