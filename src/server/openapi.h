/* SPDX-License-Identifier: Apache-2.0 */
/* openapi.h - what openapi.c cannot read off the server's own tables: words and answers of each route. */
#ifndef FL_SERVER_OPENAPI_H
#define FL_SERVER_OPENAPI_H

#include "server/fields.h"
#include "server/routes.h"

typedef struct fl_operation {
    const char     *method, *path; /* as in the route tables */
    const char     *summary;
    const fl_field *fields;     /* of the body; NULL: none */
    const char     *good;       /* schema of the answer; NULL: no body */
    const char     *type;       /* of the answer, or several: "a/b, c/d"; NULL: application/json */
    const char     *parameters; /* JSON, comma-separated; NULL: none */
    bool            embeds; /* takes x-fletch-… headers, can answer application/octet-stream */
    const char *
        rule; /* more of the body's schema, as `"oneOf":[...]`; NULL: none. Without fields: a form's */
} fl_operation;

extern const fl_operation fl_operations[]; /* openapi_text.c; a row of zeros ends it */

typedef struct fl_schema {
    const char *name, *schema;
} fl_schema;

extern const fl_schema fl_schemas[]; /* components.schemas; a row of zeros ends it */

/* The dialects' tables. */
extern const fl_field fl_fields_openai[];
extern const fl_field fl_fields_tei_embed[], fl_fields_tei_similarity[], fl_fields_tei_tokens[],
    fl_fields_tei_predict[], fl_fields_tei_zero_shot[], fl_fields_tei_rerank[],
    fl_fields_tei_tokenize[], fl_fields_tei_decode[], fl_fields_tei_chunks[];
extern const fl_field fl_fields_batch[];
extern const fl_field fl_fields_voyage[];
extern const fl_field fl_fields_score[];
extern const fl_field fl_fields_seed_add[], fl_fields_seed_search[];
extern const fl_field fl_fields_load[], fl_fields_unload[];
extern const fl_field fl_fields_ollama_embed[], fl_fields_ollama_embeddings[],
    fl_fields_ollama_named[];
extern const fl_field fl_fields_cohere[], fl_fields_rerank_cohere[];

#endif
