/* SPDX-License-Identifier: Apache-2.0 */
/* log_lines.h - what the library said, kept until Python comes by. */
#ifndef FP_LOG_LINES_H
#define FP_LOG_LINES_H

void fp_on_log(void *user, int level, const char *message); /* for fletch_config_set_log */
void fp_log_after_fork(void);

#endif
