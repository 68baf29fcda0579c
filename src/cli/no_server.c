/* SPDX-License-Identifier: Apache-2.0 */
/* no_server.c - what a build without the server (FLETCH_SERVER=OFF), and so without SQLite, says in place of
 * cmd_serve.c, stored_sqlite.c and move_store.c. */
#include "cli/job.h"
#include "cli/stored.h"

fl_exit fl_cmd_serve(fl_cli *cli) {
    return fl_cli_usage(cli, "this build has no server (FLETCH_SERVER=OFF)");
}

fl_exit fl_stored_sqlite(fl_stored *stored, fl_cli *cli) {
    return fl_cli_usage(cli,
                        "%s is an SQLite file, which this build (FLETCH_SERVER=OFF) cannot read",
                        stored->path);
}

fl_exit fl_move_store(fl_cli *cli, const char *old) {
    return fl_cli_usage(cli,
                        "%s is a file, and this build (FLETCH_SERVER=OFF) cannot read stores; it "
                        "can re-embed a job's folder",
                        old);
}
