/* SPDX-License-Identifier: Apache-2.0 */
/* locked.h - who must hold the lock of a model, as clang checks it (tests/tidy/test_tidy_locks.py).
 *
 * Method  What the analysis follows is one role, not each model's mutex: it could not know that request->model
 *         and slot->replica->set->model are one, and a thread has to do with one model at a time.
 *         FL_LOCKED      the caller holds the lock, and does so afterwards; it may be let go meanwhile
 *         FL_GUARDED     a field that is read and written with the lock alone
 *         FL_UNCHECKED   before anybody else has the model, after everybody has left it, or where a line says why
 * Other compilers see nothing of it. */
#ifndef FL_BASE_LOCKED_H
#define FL_BASE_LOCKED_H

#if defined(__clang__)
struct __attribute__((capability("role"))) fl_model_role {
    char unused;
};
extern struct fl_model_role fl_model_role; /* a name for the analysis: there is no such object */
#define FL_LOCKED     __attribute__((requires_capability(fl_model_role)))
#define FL_GUARDED    __attribute__((guarded_by(fl_model_role)))
#define FL_TAKES_LOCK __attribute__((acquire_capability(fl_model_role)))
#define FL_DROPS_LOCK __attribute__((release_capability(fl_model_role)))
#define FL_UNCHECKED  __attribute__((no_thread_safety_analysis))
#else
#define FL_LOCKED
#define FL_GUARDED
#define FL_TAKES_LOCK
#define FL_DROPS_LOCK
#define FL_UNCHECKED
#endif

#endif
