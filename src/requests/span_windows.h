/* SPDX-License-Identifier: Apache-2.0 */
/* span_windows.h - documents with spans become windows of token ids. */
#ifndef FL_REQUESTS_SPAN_WINDOWS_H
#define FL_REQUESTS_SPAN_WINDOWS_H

#include "requests/request.h"

/* From here on the request's texts are its documents' windows. EINVAL and EUTF8 name document and span. */
int fl_spans_cut(fl_request *request, const fletch_request *asked, fletch_error *error);

#endif
