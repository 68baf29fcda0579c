/* SPDX-License-Identifier: Apache-2.0 */
/* service.h - run what main.c has as main: as a service where Windows has started it as one. */
#ifndef FL_BASE_WINDOWS_SERVICE_H
#define FL_BASE_WINDOWS_SERVICE_H

int fl_windows_run(int argc, char **argv);

#endif
