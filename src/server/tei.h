/* SPDX-License-Identifier: Apache-2.0 */
/* tei.h - what the files of the text-embeddings-inference dialect share. */
#ifndef FL_SERVER_TEI_H
#define FL_SERVER_TEI_H

#include "server/embedding.h"
#include "server/routes.h"

/* The faults and refusals of the dialect, for styles. */
extern const fl_faults fl_tei_faults;

/* {"score","label"} to a list of them, which the first (i = 0) begins and the caller ends. */
void fl_tei_put_class(fl_buf *body, size_t i, float score, const char *label, size_t size);

/* tei_chunks.c */
void fl_tei_embed_chunks(fl_http_request *request);
/* tei_zero_shot.c */
void fl_tei_zero_shot(fl_http_request *request);
/* tei_tokens.c */
void fl_tei_tokenize(fl_http_request *request);
void fl_tei_decode(fl_http_request *request);
/* tei_info.c */
void fl_tei_info(fl_http_request *request);
void fl_tei_health(fl_http_request *request);

#endif
