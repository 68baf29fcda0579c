/* SPDX-License-Identifier: Apache-2.0 */
/* multipart.h - the parts of a form (multipart/form-data), read in place. */
#ifndef FL_SERVER_MULTIPART_H
#define FL_SERVER_MULTIPART_H

#include "base/json_in.h"

enum { FL_BOUNDARY_MAX = 70 };

typedef struct fl_multipart {
    char       *at, *end;
    char        mark[FL_BOUNDARY_MAX + 5]; /* "\r\n--" and the boundary */
    size_t      mark_size;
    const char *fault; /* why there is no next part; NULL: there are no more */
} fl_multipart;

typedef struct fl_form_part {
    fl_span name, filename; /* filename: data NULL where there is none */
    fl_span data;
} fl_form_part;

/* `type`: the header Content-Type, or NULL. False: it is no form; in->fault says why. */
bool fl_multipart_begin(fl_multipart *in, const char *type, char *body, size_t size);
/* The spans lie in the body. False: no more, or in->fault. */
bool fl_multipart_next(fl_multipart *in, fl_form_part *part);

#endif
