/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - do something dangerous in a child process first. */
#ifndef FL_ENGINES_ONNXRUNTIME_CHILD_H
#define FL_ENGINES_ONNXRUNTIME_CHILD_H

#include "fletch.h"

/* Call act(path) in a child. FLETCH_OK when the child came back, whatever act said (the caller does
 * it again and hears why); EPROVIDER when it was killed by a signal or did not end in time. */
int fl_ort_child_probe(int (*act)(const char *path), const char *path, fletch_error *error);

#endif
