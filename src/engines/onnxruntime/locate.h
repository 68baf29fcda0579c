/* SPDX-License-Identifier: Apache-2.0 */
/* locate.h - where an ONNX Runtime library may lie on this machine. */
#ifndef FL_ENGINES_ONNXRUNTIME_LOCATE_H
#define FL_ENGINES_ONNXRUNTIME_LOCATE_H

/* `path` is a file, or a bare name that the dynamic loader looks for. Non-zero stops the search. */
typedef int (*fl_ort_visit_fn)(void *user, const char *path);

/* Visit the places in turn; `library` is a file or folder, "" for the usual places. Returns what
 * the function stopped with, 0 when it never did. */
int fl_ort_locate(const char *library, fl_ort_visit_fn fn, void *user);

#endif
