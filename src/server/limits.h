/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h - every bound of the server that is not an option, with the status it causes.
 *
 * Role    Numbers that protect the process whatever a client sends; the ones a person may want to turn
 *         are options (server.max_body, server.deadline_ms …). tests/server walks each at n-1, n, n+1.
 * Proof   tests/server/test_transport_limits.py. */
#ifndef FL_SERVER_LIMITS_H
#define FL_SERVER_LIMITS_H

enum {
    FL_LIMIT_HEADER_BYTES = 16 * 1024, /* names and values together: 431 */
    FL_LIMIT_HEADERS      = 100,       /* header lines: 431 */
    FL_LIMIT_URI          = 4096,      /* path and query: 414 */
    FL_LIMIT_PIECES       = 65536,     /* chunks of one body: 413 (counting bytes is not enough) */
    FL_LIMIT_JSON_DEPTH   = 32,        /* nesting of a body: 400 */
    FL_LIMIT_REQUEST_ID   = 128,       /* longer x-request-id are replaced */
    FL_LIMIT_API_KEY      = 512,       /* longer keys are wrong keys: 401 */
    FL_ANSWER_MAX         = 512 << 20, /* bytes of one answer, vectors counted as JSON: 413 */

    FL_LINGER_SECONDS = 2, /* a refused sender may finish reading the refusal */

    FL_LONE_TURNS = 8,    /* requests in a row that make a connection the only one that speaks */
    FL_SPARE_US   = 5000, /* how long its work may then keep its I/O thread */

    FL_POOLED_REQUESTS = 256,        /* finished request objects that are kept */
    FL_POOLED_BYTES    = 256 * 1024, /* larger buffers of a kept request are given back */
    FL_WORKERS_MAX     = 4,          /* threads for what blocks or takes long */
    FL_WORK_QUEUE      = 4096        /* jobs that may wait for them: 503 */
};

#endif
