/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h - every route table and dialect by name, for the list in routes.c.
 *
 * Adding a table: declare it here, name it in routes.c (tables[]); adding a dialect: declare it here, and
 * say in routes.c (families[]) which unknown paths speak it, longer prefixes first. */
#ifndef FL_SERVER_ROUTES_H
#define FL_SERVER_ROUTES_H

#include "server/server.h"

/* {"error": "..."}: for operations, and for paths that belong to nobody. */
extern const fl_dialect fl_dialect_plain;
extern const fl_dialect fl_dialect_openai, fl_dialect_tei, fl_dialect_ollama, fl_dialect_cohere,
    fl_dialect_voyage;

extern const fl_route fl_routes_operations[]; /* operations.c: /live /ready /metrics */
extern const fl_route fl_routes_openai[];     /* openai.c: /v1/embeddings /v1/models */
extern const fl_route fl_routes_batches[];    /* batch_routes.c: /v1/files /v1/batches */
extern const fl_route fl_routes_tei[];        /* tei.c: /embed /similarity /tokenize /info … */
extern const fl_route fl_routes_ollama[];     /* ollama.c: /api/… */
extern const fl_route fl_routes_cohere[];     /* cohere.c: /v2/embed and the rerank routes */
extern const fl_route fl_routes_voyage[];     /* contextualized.c: /v1/contextualizedembeddings */
extern const fl_route fl_routes_score[];      /* openai.c: /score */
extern const fl_route fl_routes_openapi[];    /* openapi.c: /openapi.json */
extern const fl_route fl_routes_load[];       /* load.c: /models/load /models/unload */
extern const fl_route fl_routes_seed[];       /* seed.c: /add /search /items/ */
extern const fl_route fl_routes_pages[];      /* pages.c: / and /docs for a browser */

#endif
