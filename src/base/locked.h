/* SPDX-License-Identifier: Apache-2.0 */
/* locked.h - who must hold which lock, as clang checks it (tests/tidy/test_tidy_locks.py).
 *
 * Method  What the analysis follows is a role for each kind of lock, not each object's mutex: it could not know that
 *         request->model and worker->replica->set->scheduler share one, and a thread has to do with one model at
 *         a time. FL_LOCK_ROLE(name) makes a role; it is a name for the analysis, there is no such object.
 *         FL_REQUIRES(role)   the caller holds the lock, and does so afterwards; it may be let go meanwhile
 *         FL_GUARDED_BY(role) a field that is read and written with the lock alone
 *         FL_ACQUIRES(role), FL_RELEASES(role), FL_MAY_ACQUIRE(role): where it returns true
 *         FL_UNCHECKED        before anybody else has the object, after everybody has left it, or where a line says why
 *         FL_LOCK_OF(role, type, mutex, take, leave) makes take(object) and leave(object) for a mutex of a struct
 *         FL_LOCKED and FL_GUARDED are these of the most common lock, that of a model.
 * Other compilers see nothing of it. */
#ifndef FL_BASE_LOCKED_H
#define FL_BASE_LOCKED_H

#include <pthread.h>

#if defined(__clang__)
#define FL_LOCK_ROLE(name)                                                                         \
    struct __attribute__((capability("role"))) name {                                              \
        char unused;                                                                               \
    };                                                                                             \
    extern struct name name
#define FL_REQUIRES(role)    __attribute__((requires_capability(role)))
#define FL_GUARDED_BY(role)  __attribute__((guarded_by(role)))
#define FL_ACQUIRES(role)    __attribute__((acquire_capability(role)))
#define FL_RELEASES(role)    __attribute__((release_capability(role)))
#define FL_MAY_ACQUIRE(role) __attribute__((try_acquire_capability(true, role)))
#define FL_UNCHECKED         __attribute__((no_thread_safety_analysis))
#else
#define FL_LOCK_ROLE(name) struct name
#define FL_REQUIRES(role)
#define FL_GUARDED_BY(role)
#define FL_ACQUIRES(role)
#define FL_RELEASES(role)
#define FL_MAY_ACQUIRE(role)
#define FL_UNCHECKED
#endif

#define FL_LOCK_OF(role, type, mutex, take, leave)                                                 \
    FL_ACQUIRES(role) FL_UNCHECKED static inline void take(type *object) {                         \
        pthread_mutex_lock(&object->mutex);                                                        \
    }                                                                                              \
    FL_RELEASES(role) FL_UNCHECKED static inline void leave(type *object) {                        \
        pthread_mutex_unlock(&object->mutex);                                                      \
    }                                                                                              \
    struct role

FL_LOCK_ROLE(fl_model_role);
#define FL_LOCKED     FL_REQUIRES(fl_model_role)
#define FL_GUARDED    FL_GUARDED_BY(fl_model_role)
#define FL_TAKES_LOCK FL_ACQUIRES(fl_model_role)
#define FL_DROPS_LOCK FL_RELEASES(fl_model_role)

#endif
