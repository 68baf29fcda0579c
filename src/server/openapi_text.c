/* SPDX-License-Identifier: Apache-2.0 */
/* openapi_text.c - words and answers of each route, for /openapi.json.
 *
 * Role    the part of the document that a table of fields does not hold.
 * Method  one row per route; schemas that several routes share have a name.
 * Memory  static. Threads: any.
 * Proof   tests/server/test_openapi.py: every route has a row, every answer fits its schema. */
#include "server/openapi.h"

#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"
#define STORE     "\"store\":{\"enum\":[\"file\",\"memory\"]}"
#define ARRAY(of) "{\"type\":\"array\",\"items\":" of "}"
#define STRING    "{\"type\":\"string\"}"
#define INTEGER   "{\"type\":\"integer\"}"
#define NUMBER    "{\"type\":\"number\"}"
#define BOOLEAN   "{\"type\":\"boolean\"}"
#define STATE     "{\"enum\":[\"closed\",\"loading\",\"loaded\",\"closing\",\"failed\"]}"
#define MAYBE     "{\"type\":[\"string\",\"null\"]}"
#define OBJECT(required, properties)                                                               \
    "{\"type\":\"object\",\"required\":[" required "],\"properties\":{" properties "}}"

/* Where a text lies: of a chunk in its document. */
#define SPAN     "{\"type\":\"array\",\"items\":" INTEGER ",\"minItems\":2,\"maxItems\":2}"
#define PLACE    "\"bytes\":" SPAN ",\"chars\":" SPAN
#define METADATA "\"metadata\":{\"type\":[\"object\",\"null\"]}"
#define WHEN     "{\"type\":[\"integer\",\"null\"]}"
#define PAGE(of)                                                                                   \
    OBJECT("\"object\",\"data\",\"first_id\",\"last_id\",\"has_more\"",                            \
           "\"object\":{\"const\":\"list\"},\"data\":" ARRAY(REF(of)) ",\"first_id\":" MAYBE       \
                                                                      ",\"last_id\":" MAYBE        \
                                                                      ",\"has_more\":" BOOLEAN)
#define TEXT "\"error\":" STRING ",\"text\":" STRING
#define HIGHLIGHT                                                                                  \
    "\"passage\":" OBJECT(                                                                         \
        "\"bytes\",\"chars\",\"text\"",                                                            \
        PLACE ",\"text\":" STRING) ",\"words\":" ARRAY(OBJECT("\"bytes\",\"chars\"", PLACE))

const fl_schema fl_schemas[] = {
    {"openai_error",
     OBJECT("\"error\"", "\"error\":" OBJECT("\"message\",\"type\",\"param\",\"code\"",
                                             "\"message\":" STRING ",\"type\":" STRING
                                             ",\"param\":" MAYBE ",\"code\":" MAYBE))},
    {"tei_error",
     OBJECT("\"error\",\"error_type\"",
            "\"error\":" STRING ",\"error_type\":{\"enum\":[\"Empty\",\"Validation\",\"Tokenizer\","
            "\"Backend\",\"Overloaded\",\"Unhealthy\"]}")},
    {"ollama_error", OBJECT("\"error\"", "\"error\":" STRING)},
    {"cohere_error", OBJECT("\"message\"", "\"message\":" STRING)},
    {"voyage_error", OBJECT("\"detail\"", "\"detail\":" STRING)},
    {"plain_error", OBJECT("\"error\",\"code\"", "\"error\":" STRING ",\"code\":" STRING)},
    {"row", "{\"description\":\"numbers, or base64 of their bytes\",\"oneOf\":[" ARRAY(
                NUMBER) "," STRING "]}"},
    {"weights",
     OBJECT("\"indices\",\"values\"", "\"indices\":" ARRAY(INTEGER) ",\"values\":" ARRAY(NUMBER))},
    {"details_tokens", ARRAY(INTEGER)},
    {"openai_list",
     OBJECT("\"object\",\"data\",\"model\",\"usage\"",
            "\"object\":{\"const\":\"list\"},\"data\":" ARRAY(OBJECT(
                "\"object\",\"index\",\"embedding\"",
                "\"object\":{\"const\":\"embedding\"},\"index\":" INTEGER ",\"embedding\":" REF(
                    "row") ",\"tokens\":" INTEGER ",\"truncated\":" BOOLEAN
                           ",\"outputs\":{\"type\":\"object\",\"additionalProperties\":"
                           "{\"oneOf\":[" ARRAY(NUMBER) "," STRING "," ARRAY(ARRAY(NUMBER)) "," REF(
                               "weights") "]}}")) ",\"model\":" STRING
                                                  ",\"usage\":" OBJECT(
                                                      "\"prompt_tokens\",\"total_tokens\"",
                                                      "\"prompt_tokens\":" INTEGER
                                                      ",\"total_tokens\":" INTEGER))},
    {"openai_file",
     OBJECT("\"id\",\"object\",\"bytes\",\"created_at\",\"filename\",\"purpose\",\"status\"",
            "\"id\":" STRING ",\"object\":{\"const\":\"file\"},\"bytes\":" INTEGER
            ",\"created_at\":" INTEGER ",\"expires_at\":" WHEN ",\"filename\":" STRING
            ",\"purpose\":{\"enum\":[\"batch\",\"batch_output\"]},\"status\":{\"const\":"
            "\"processed\"}")},
    {"openai_files", PAGE("openai_file")},
    {"openai_batch",
     OBJECT("\"id\",\"object\",\"endpoint\",\"input_file_id\",\"completion_window\",\"status\","
            "\"created_at\",\"request_counts\"",
            "\"id\":" STRING ",\"object\":{\"const\":\"batch\"},\"endpoint\":" STRING
            ",\"model\":" MAYBE
            ",\"errors\":{\"type\":[\"object\",\"null\"]},\"input_file_id\":" STRING
            ",\"completion_window\":" STRING
            ",\"status\":{\"enum\":[\"validating\",\"failed\",\"in_progress\",\"finalizing\","
            "\"completed\",\"expired\",\"cancelling\",\"cancelled\"]},\"output_file_id\":" MAYBE
            ",\"error_file_id\":" MAYBE ",\"created_at\":" INTEGER ",\"failed_at\":" WHEN
            ",\"in_progress_at\":" WHEN ",\"finalizing_at\":" WHEN ",\"completed_at\":" WHEN
            ",\"expired_at\":" WHEN ",\"cancelling_at\":" WHEN ",\"cancelled_at\":" WHEN
            ",\"expires_at\":" WHEN
            ",\"request_counts\":" OBJECT("\"total\",\"completed\",\"failed\"",
                                          "\"total\":" INTEGER ",\"completed\":" INTEGER
                                          ",\"failed\":" INTEGER) ",\"usage\":{\"type\":"
                                                                  "\"object\"}," METADATA)},
    {"openai_batches", PAGE("openai_batch")},
    {"voyage_list",
     OBJECT("\"object\",\"data\",\"model\",\"usage\"",
            "\"object\":{\"const\":\"list\"},\"data\":" ARRAY(OBJECT(
                "\"object\",\"data\",\"index\"",
                "\"object\":{\"const\":\"list\"},\"index\":" INTEGER ",\"data\":" ARRAY(OBJECT(
                    "\"object\",\"embedding\",\"index\"",
                    "\"object\":{\"const\":\"embedding\"},\"index\":" INTEGER ",\"embedding\":" REF(
                        "row"))))) ",\"model\":" STRING
                                   ",\"usage\":" OBJECT("\"total_tokens\"",
                                                        "\"total_tokens\":" INTEGER))},
    {"tei_chunks",
     ARRAY(ARRAY(OBJECT("\"chars\",\"bytes\",\"embedding\"",
                        "\"chars\":" ARRAY(INTEGER) ",\"bytes\":" ARRAY(
                            INTEGER) ",\"tokens\":" INTEGER ",\"embedding\":" REF("row"))))},
    {"openai_model",
     OBJECT("\"id\",\"object\",\"created\",\"owned_by\"",
            "\"id\":" STRING ",\"object\":{\"const\":\"model\"},\"created\":" INTEGER
            ",\"owned_by\":" STRING ",\"state\":" STATE ",\"pinned\":" BOOLEAN
            ",\"dimensions\":" INTEGER ",\"max_length\":" INTEGER)},
    {"openai_models",
     OBJECT("\"object\",\"data\"",
            "\"object\":{\"const\":\"list\"},\"data\":" ARRAY(REF("openai_model")))},
    {"tei_rows", "{\"oneOf\":[" ARRAY(REF("row")) "," OBJECT(
                     "\"embeddings\",\"tokens\",\"truncated\"",
                     "\"embeddings\":" ARRAY(REF("row")) ",\"tokens\":" ARRAY(
                         INTEGER) ",\"truncated\":" ARRAY(BOOLEAN)) "]}"},
    {"tei_token", OBJECT("\"id\",\"text\",\"special\",\"start\",\"stop\"",
                         "\"id\":" INTEGER ",\"text\":" STRING ",\"special\":" BOOLEAN
                         ",\"start\":{\"type\":[\"integer\",\"null\"]},\"stop\":{\"type\":["
                         "\"integer\",\"null\"]}")},
    {"tei_info",
     OBJECT("\"model_id\",\"model_sha\",\"model_dtype\",\"served_model_name\",\"model_type\","
            "\"max_concurrent_requests\",\"max_input_length\",\"max_batch_tokens\",\"max_batch_"
            "requests\",\"max_client_batch_size\",\"auto_truncate\",\"tokenization_workers\","
            "\"version\",\"dimensions\",\"model_fingerprint\",\"vector_id\",\"encoder\"",
            "\"model_id\":" STRING ",\"model_sha\":" MAYBE ",\"model_dtype\":" STRING
            ",\"max_input_length\":" INTEGER ",\"auto_truncate\":" BOOLEAN
            ",\"dimensions\":" INTEGER ",\"model_fingerprint\":" MAYBE ",\"vector_id\":" MAYBE
            ",\"encoder\":" OBJECT("\"family\",\"features\",\"task\",\"max_positions\"",
                                   "\"family\":" STRING ",\"features\":" STRING ",\"task\":" MAYBE
                                   ",\"max_positions\":" INTEGER))},
    {"ollama_embed", OBJECT("\"model\",\"embeddings\"",
                            "\"model\":" STRING ",\"embeddings\":" ARRAY(REF(
                                "row")) ",\"total_duration\":" INTEGER ",\"load_duration\":" INTEGER
                                        ",\"prompt_eval_count\":" INTEGER ",\"tokens\":" ARRAY(
                                            INTEGER) ",\"truncated\":" ARRAY(BOOLEAN))},
    {"ollama_tags",
     OBJECT("\"models\"",
            "\"models\":" ARRAY(OBJECT("\"name\",\"model\",\"modified_at\",\"size\",\"digest\","
                                       "\"details\"",
                                       "\"name\":" STRING ",\"model\":" STRING)))},
    {"cohere_embed",
     OBJECT("\"id\",\"embeddings\",\"texts\",\"response_type\",\"meta\"",
            "\"id\":" STRING ",\"embeddings\":{\"type\":\"object\",\"additionalProperties\":" ARRAY(
                REF("row")) "},\"texts\":" ARRAY(STRING) ",\"response_type\":{\"const\":"
                                                         "\"embeddings_by_type\"},\"meta\":{"
                                                         "\"type\":\"object\"}")},
    {"added", OBJECT("\"store\",\"ids\",\"count\",\"model\",\"tokens\",\"truncated\"", STORE
                     ",\"id\":" STRING
                     ",\"ids\":" ARRAY(STRING) ",\"count\":" INTEGER ",\"model\":" STRING
                                               ",\"chunks\":" ARRAY(INTEGER) ",\"tokens\":" ARRAY(
                                                   INTEGER) ",\"truncated\":" ARRAY(BOOLEAN))},
    {"found_chunk", OBJECT("\"chunk\",\"bytes\",\"chars\",\"score\"",
                           "\"chunk\":" INTEGER "," PLACE ",\"score\":" NUMBER
                           ",\"before\":" INTEGER "," TEXT "," HIGHLIGHT)},
    {"found",
     OBJECT("\"store\",\"results\",\"count\",\"searched\",\"model\"",
            STORE ",\"results\":" ARRAY(OBJECT(
                "\"id\",\"score\"",
                "\"id\":" STRING ",\"score\":" NUMBER ",\"before\":" INTEGER ",\"chunk\":" INTEGER
                "," PLACE "," TEXT "," METADATA "," HIGHLIGHT ",\"chunks\":" ARRAY(
                    REF("found_chunk")))) ",\"count\":" INTEGER ",\"searched\":" INTEGER
                                          ",\"model\":" STRING ",\"reranker\":" STRING)},
    {"items",
     OBJECT("\"store\",\"count\",\"offset\",\"limit\",\"items\"", STORE
            ",\"count\":" INTEGER ",\"offset\":" INTEGER ",\"limit\":" INTEGER
            ",\"items\":" ARRAY(OBJECT("\"id\",\"created\"",
                                       "\"id\":" STRING ",\"created\":" INTEGER
                                       ",\"chunk\":" INTEGER "," PLACE "," TEXT "," METADATA)))},
    {"tei_class", OBJECT("\"score\",\"label\"", "\"score\":" NUMBER ",\"label\":" STRING)},
    {"tei_classes", "{\"anyOf\":[" ARRAY(REF("tei_class")) "," ARRAY(ARRAY(REF("tei_class"))) "]}"},
    {"tei_ranked", ARRAY(OBJECT("\"index\",\"score\"",
                                "\"index\":" INTEGER ",\"score\":" NUMBER ",\"text\":" STRING))},
    {"ranked",
     OBJECT("\"id\",\"model\",\"results\",\"usage\",\"meta\"",
            "\"id\":" STRING ",\"model\":" STRING ",\"results\":" ARRAY(OBJECT(
                "\"index\",\"relevance_score\"",
                "\"index\":" INTEGER ",\"relevance_score\":" NUMBER
                ",\"document\":" OBJECT("\"text\"", "\"text\":" STRING))) ",\"usage\":{\"type\":"
                                                                          "\"object\"},"
                                                                          "\"meta\":{\"type\":"
                                                                          "\"object\"}")},
    {"scores",
     OBJECT("\"id\",\"object\",\"created\",\"model\",\"data\",\"usage\"",
            "\"id\":" STRING ",\"object\":" STRING ",\"created\":" INTEGER ",\"model\":" STRING
            ",\"data\":" ARRAY(OBJECT("\"index\",\"object\",\"score\"",
                                      "\"index\":" INTEGER ",\"object\":" STRING
                                      ",\"score\":" NUMBER)) ",\"usage\":{\"type\":"
                                                             "\"object\"}")},
    {"item",
     OBJECT("\"id\",\"metadata\",\"created\"",
            "\"id\":" STRING ",\"text\":" STRING "," METADATA ",\"context\":" STRING
            ",\"created\":" INTEGER ",\"embedding\":" REF("row") ",\"chunks\":" ARRAY(OBJECT(
                "\"chunk\",\"bytes\",\"chars\",\"text\",\"embedding\"",
                "\"chunk\":" INTEGER "," PLACE ",\"text\":" STRING ",\"embedding\":" REF("row"))))},
    {0}};

#define ITEM_ID                                                                                    \
    "{\"name\":\"id\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\","          \
    "\"minLength\":1}}"
#define PAGE_OF(most)                                                                              \
    "{\"name\":\"after\",\"in\":\"query\",\"schema\":" STRING "},{\"name\":\"limit\",\"in\":"      \
    "\"query\",\"schema\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":" most "}}"
#define BINARY_NOTE "; Accept: application/octet-stream gives the rows alone"

const fl_operation fl_operations[] = {
    {"POST", "/v1/embeddings", "Embed texts or token ids" BINARY_NOTE, fl_fields_openai,
     REF("openai_list"), NULL, NULL, true, NULL},
    {"POST", "/embeddings", "The same as /v1/embeddings", fl_fields_openai, REF("openai_list"),
     NULL, NULL, true, NULL},
    {"GET", "/v1/models", "The loaded models", NULL, REF("openai_models"), NULL, NULL, false, NULL},
    {"GET", "/v1/models/", "One loaded model", NULL, REF("openai_model"), NULL,
     "{\"name\":\"id\",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"string\","
     "\"minLength\":1}}",
     false, NULL},
    {"POST", "/v1/files", "Keep a file of requests for a batch", NULL, REF("openai_file"), NULL,
     NULL, false,
     "\"type\":\"object\",\"required\":[\"file\",\"purpose\"],\"properties\":{\"file\":{"
     "\"type\":\"string\",\"format\":\"binary\"},\"purpose\":{\"enum\":[\"batch\"]}}"},
    {"GET", "/v1/files", "The kept files", NULL, REF("openai_files"), NULL,
     PAGE_OF("10000") ",{\"name\":\"order\",\"in\":\"query\",\"schema\":{\"enum\":[\"asc\","
                      "\"desc\"]}},{\"name\":\"purpose\",\"in\":\"query\",\"schema\":" STRING "}",
     false, NULL},
    {"GET", "/v1/files/", "One kept file", NULL, REF("openai_file"), NULL, ITEM_ID, false, NULL},
    {"GET", "/v1/files/*/content", "Its bytes", NULL, "{\"type\":\"string\",\"format\":\"binary\"}",
     "application/octet-stream", ITEM_ID, false, NULL},
    {"DELETE", "/v1/files/", "Drop a kept file", NULL,
     OBJECT("\"id\",\"object\",\"deleted\"", "\"id\":" STRING ",\"object\":{\"const\":\"file\"},"
                                             "\"deleted\":{\"const\":true}"),
     NULL, ITEM_ID, false, NULL},
    {"POST", "/v1/batches", "Run the requests of a file", fl_fields_batch, REF("openai_batch"),
     NULL, NULL, false, NULL},
    {"GET", "/v1/batches", "The batches", NULL, REF("openai_batches"), NULL, PAGE_OF("100"), false,
     NULL},
    {"GET", "/v1/batches/", "One batch", NULL, REF("openai_batch"), NULL, ITEM_ID, false, NULL},
    {"POST", "/v1/batches/*/cancel", "Run no more of a batch", NULL, REF("openai_batch"), NULL,
     ITEM_ID, false, NULL},
    {"POST", "/embed", "Embed texts or token ids" BINARY_NOTE, fl_fields_tei_embed, REF("tei_rows"),
     NULL, NULL, true, NULL},
    {"POST", "/", "The same as /embed", fl_fields_tei_embed, REF("tei_rows"), NULL, NULL, true,
     NULL},
    {"POST", "/similarity", "Cosine of one sentence with others", fl_fields_tei_similarity,
     ARRAY(NUMBER), NULL, NULL, false, NULL},
    {"POST", "/tokenize", "Tokens of texts, with byte offsets", fl_fields_tei_tokenize,
     ARRAY(ARRAY(REF("tei_token"))), NULL, NULL, false, NULL},
    {"POST", "/decode", "Texts of token ids", fl_fields_tei_decode, ARRAY(STRING), NULL, NULL,
     false, NULL},
    {"POST", "/embed_all", "A vector for every token", fl_fields_tei_tokens,
     ARRAY(ARRAY(REF("row"))), NULL, NULL, false, NULL},
    {"POST", "/embed_chunks",
     "Cut documents into chunks, and embed these with their places" BINARY_NOTE,
     fl_fields_tei_chunks, REF("tei_chunks"), NULL, NULL, true, NULL},
    {"POST", "/embed_sparse", "Weights of vocabulary entries, of a SPLADE model or bge-m3",
     fl_fields_tei_tokens,
     ARRAY(ARRAY(OBJECT("\"index\",\"value\"", "\"index\":" INTEGER ",\"value\":" NUMBER))), NULL,
     NULL, false, NULL},
    {"POST", "/predict", "Labels of texts or pairs, with a classifier", fl_fields_tei_predict,
     REF("tei_classes"), NULL, NULL, false, NULL},
    {"POST", "/zero-shot-classification", "Labels of one's own, with a model of inference (NLI)",
     fl_fields_tei_zero_shot, REF("tei_classes"), NULL, NULL, false, NULL},
    {"POST", "/rerank", "Order texts by a query, with a reranker", fl_fields_tei_rerank,
     REF("tei_ranked"), NULL, NULL, false, NULL},
    {"POST", "/score", "Scores of pairs, with a reranker", fl_fields_score, REF("scores"), NULL,
     NULL, false, NULL},
    {"POST", "/v1/score", "The same as /score", fl_fields_score, REF("scores"), NULL, NULL, false,
     NULL},
    {"GET", "/info", "What is served and its limits", NULL, REF("tei_info"), NULL,
     "{\"name\":\"model\",\"in\":\"query\",\"schema\":{\"type\":\"string\"}}", false, NULL},
    {"GET", "/health", "200 when ready to serve", NULL, NULL, NULL, NULL, false, NULL},
    {"GET", "/ping", "The same as /health", NULL, NULL, NULL, NULL, false, NULL},
    {"POST", "/api/embed", "Embed texts" BINARY_NOTE, fl_fields_ollama_embed, REF("ollama_embed"),
     NULL, NULL, true, NULL},
    {"POST", "/api/embeddings", "The raw vector of one text", fl_fields_ollama_embeddings,
     OBJECT("\"embedding\"", "\"embedding\":" REF("row")), NULL, NULL, true, NULL},
    {"GET", "/api/tags", "The loaded models", NULL, REF("ollama_tags"), NULL, NULL, false, NULL},
    {"GET", "/api/ps", "The loaded models, as running", NULL, REF("ollama_tags"), NULL, NULL, false,
     NULL},
    {"POST", "/api/show", "What a loaded model is", fl_fields_ollama_named, "{\"type\":\"object\"}",
     NULL, NULL, false, NULL},
    {"POST", "/api/pull", "Bring a model of the hub into the cache (server.allow_pull)",
     fl_fields_ollama_named, "{\"type\":\"object\"}", "application/json, application/x-ndjson",
     NULL, false, NULL},
    {"DELETE", "/api/delete", "Take a model out of the cache (server.allow_pull)",
     fl_fields_ollama_named, NULL, NULL, NULL, false, NULL},
    {"GET", "/api/version", "The version", NULL, OBJECT("\"version\"", "\"version\":" STRING), NULL,
     NULL, false, NULL},
    {"POST", "/v2/embed", "Embed texts in several element types at once" BINARY_NOTE,
     fl_fields_cohere, REF("cohere_embed"), NULL, NULL, true, NULL},
    {"POST", "/v1/contextualizedembeddings",
     "Embed the chunks of documents, each knowing its document" BINARY_NOTE, fl_fields_voyage,
     REF("voyage_list"), NULL, NULL, true, NULL},
    {"POST", "/v1/rerank", "Order documents by a query, with a reranker", fl_fields_rerank_cohere,
     REF("ranked"), NULL, NULL, false, NULL},
    {"POST", "/v2/rerank", "Order documents by a query, with a reranker", fl_fields_rerank_cohere,
     REF("ranked"), NULL, NULL, false, NULL},
    {"POST", "/models/load", "Open a model that is offered on demand, or put another in its place",
     fl_fields_load,
     OBJECT("\"model\",\"state\",\"vector_id\"",
            "\"model\":" STRING ",\"state\":" STATE ",\"vector_id\":" STRING),
     NULL, NULL, false, NULL},
    {"POST", "/models/unload", "Close a model on demand once no request works with it",
     fl_fields_unload, OBJECT("\"model\",\"state\"", "\"model\":" STRING ",\"state\":" STATE), NULL,
     NULL, false, NULL},
    {"POST", "/add", "Embed texts, or their chunks, and keep them", fl_fields_seed_add,
     REF("added"), NULL, NULL, false,
     "\"oneOf\":[{\"required\":[\"text\"],\"not\":{\"required\":[\"ids\"]}},{\"required\":["
     "\"texts\"],"
     "\"not\":{\"required\":[\"id\"]}}]"},
    {"POST", "/search", "The kept texts or documents that are most like a text or vector",
     fl_fields_seed_search, REF("found"), NULL, NULL, false,
     "\"oneOf\":[{\"required\":[\"text\"]},{\"required\":[\"vector\"]}]"},
    {"GET", "/items", "The kept texts in the order in which they came", NULL, REF("items"), NULL,
     "{\"name\":\"offset\",\"in\":\"query\",\"schema\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":2147483647}},{\"name\":\"limit\",\"in\":\"query\",\"schema\":{\"type\":"
     "\"integer\",\"minimum\":1,\"maximum\":1000}}",
     false, NULL},
    {"DELETE", "/items", "Drop all kept texts", NULL, OBJECT("\"deleted\"", "\"deleted\":" INTEGER),
     NULL, NULL, false, NULL},
    {"GET", "/items/", "One kept text, or all chunks of it", NULL, REF("item"), NULL, ITEM_ID,
     false, NULL},
    {"DELETE", "/items/", "Drop a kept text and all of its chunks", NULL,
     OBJECT("\"id\",\"deleted\"", "\"id\":" STRING ",\"deleted\":{\"const\":true}"), NULL, ITEM_ID,
     false, NULL},
    {"GET", "/", "The playground, a page for browsers", NULL, STRING, "text/html, text/plain", NULL,
     false, NULL},
    {"GET", "/docs", "These routes as a page for browsers", NULL, STRING, "text/html, text/plain",
     NULL, false, NULL},
    {"GET", "/live", "200 while the process answers", NULL, "{\"type\":\"object\"}", NULL, NULL,
     false, NULL},
    {"GET", "/ready", "200 when ready to serve, else 503", NULL, "{\"type\":\"object\"}", NULL,
     NULL, false, NULL},
    {"GET", "/metrics", "Prometheus metrics", NULL, STRING, "text/plain", NULL, false, NULL},
    {"GET", "/stats", "What the library counted of each model and device", NULL,
     OBJECT("\"models\"",
            "\"models\":" ARRAY(OBJECT("\"name\",\"stats\"",
                                       "\"name\":" STRING ",\"stats\":{\"type\":\"object\"}"))),
     NULL, NULL, false, NULL},
    {"POST", "/start_profile", "Begin the trace that profile.file names", NULL,
     "{\"type\":\"object\"}", NULL, NULL, false, NULL},
    {"POST", "/stop_profile", "End it and write the file", NULL, "{\"type\":\"object\"}", NULL,
     NULL, false, NULL},
    {"GET", "/openapi.json", "This document", NULL, "{\"type\":\"object\"}", NULL, NULL, false,
     NULL},
    {0}};
