/* SPDX-License-Identifier: Apache-2.0 */
/* job_refuse.c - why a job is refused, in the words of its dialect.
 *
 * In/Out  a text of fl_faults.refusals with places in braces -> the reply. The places are those of `put` below;
 *         what is in braces and no place stays as it is.
 * Memory  the text, until it is the reply's. Threads: see server.h.
 * Proof   tests/server: each dialect's file, test_promised_names.py. */
#include <string.h>

#include "server/embedding.h"

enum { NAME_SHOWN = 200, PROMPT_SHOWN = 100 };

typedef struct refusal {
    fl_job     *job;
    size_t      where;
    const char *message;
} refusal;

static void put_span(fl_buf *out, fl_span text, size_t most) {
    fl_buf_append(out, text.data, text.size < most ? text.size : most);
}

/* "`query`, `passage`" */
static void put_prompts(fl_buf *out, const fletch_model *model) {
    const fletch_prompt *prompt;
    for (size_t i = 0; (prompt = fletch_prompt_at(model, i)) != NULL; i++)
        fl_buf_printf(out, "%s`%s`", i > 0 ? ", " : "", prompt->name);
}

/* What stands in a place; false: there is no such place. */
static bool put(fl_buf *out, const refusal *of, fl_span place) {
    fl_job *job = of->job;
    if (fl_span_is(place, "message")) {
        fl_buf_puts(out, of->message);
    } else if (fl_span_is(place, "model")) {
        put_span(out, job->ask.model, NAME_SHOWN);
    } else if (fl_span_is(place, " near") || fl_span_is(place, ". near")) {
        fl_buf_puts(out, fl_job_near(job, place.data[0] == '.' ? ". " : " "));
    } else if (fl_span_is(place, "served")) {
        fl_buf_puts(out, job->served->name);
    } else if (fl_span_is(place, "dimensions")) {
        fl_json_out_u64(out, job->served->info.dimensions);
    } else if (fl_span_is(place, "size")) {
        fl_buf_puts(out, job->ask.dimensions < 1 ? "positive"
                                                 : "smaller than the maximum embedding dimension.");
    } else if (fl_span_is(place, "max_length")) {
        fl_json_out_u64(out, job->served->info.max_length);
    } else if (fl_span_is(place, "length")) {
        fl_json_out_u64(out, fl_job_length(job, of->where));
    } else if (fl_span_is(place, "where")) {
        fl_json_out_u64(out, of->where);
    } else if (fl_span_is(place, "prompt")) {
        put_span(out, job->ask.prompt_name, PROMPT_SHOWN);
    } else if (fl_span_is(place, "prompts")) {
        put_prompts(out, job->served->model);
    } else if (fl_span_is(place, "foreign")) {
        fl_buf_puts(out, job->work.ids != NULL ? "; " FL_FOREIGN_IDS : "");
    } else {
        return false;
    }
    return true;
}

void fl_job_refuse(fl_job *job, fl_refusal why, size_t where, const char *message) {
    static const fl_fault plain  = {FL_HTTP_BAD_REQUEST, "{message}"};
    const fl_faults      *faults = job->style->faults;
    const fl_fault       *fault  = &faults->refusals[why];
    const refusal         of     = {job, where, message};
    fl_buf                text   = {0};
    fault = fault->text != NULL ? fault : faults->other.text != NULL ? &faults->other : &plain;
    for (const char *at = fault->text; *at != '\0';) {
        size_t plain_size = strcspn(at, "{");
        fl_buf_append(&text, at, plain_size);
        at += plain_size;
        size_t size = strcspn(at, "}");
        if (*at == '{' && at[size] == '}' && put(&text, &of, (fl_span){at + 1, size - 1}))
            at += size + 1;
        else if (*at == '{')
            fl_buf_putc(&text, *at++);
    }
    fl_reply_error(job->request, fault->code, "%.*s",
                   (int)(text.failed ? strlen(message) : text.size),
                   text.failed ? message : text.data);
    fl_buf_free(&text);
}
