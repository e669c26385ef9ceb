/* Conditions as a newer libc has them, whose flags are at 28 and not at 36: to be preloaded after the
 * library, in the place of libc. All who wait wake at each signal. Linked with nothing, so that it has
 * no versions, and is found under any. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct condition {
    uint32_t sequence, unused[6], flags;
};

/* In the flags: a clock; one waiter. */
enum { MONOTONIC = 2, WAITER = 8 };

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr) {
    int shared = 0;
    clockid_t clock = CLOCK_REALTIME;
    if (attr != NULL) {
        pthread_condattr_getpshared(attr, &shared);
        pthread_condattr_getclock(attr, &clock);
    }
    memset(cond, 0, sizeof *cond);
    ((struct condition *)cond)->flags = shared + (clock == CLOCK_MONOTONIC ? MONOTONIC : 0);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *cond) {
    while (__atomic_load_n(&((struct condition *)cond)->flags, __ATOMIC_SEQ_CST) >= WAITER)
        sched_yield();
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond) {
    struct condition *c = (struct condition *)cond;
    int kept = errno;
    __atomic_fetch_add(&c->sequence, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &c->sequence, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    errno = kept;
    return 0;
}

int pthread_cond_signal(pthread_cond_t *cond) { return pthread_cond_broadcast(cond); }

static int wait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *at) {
    struct condition *c = (struct condition *)cond;
    if (at != NULL && (at->tv_nsec < 0 || at->tv_nsec > 999999999))
        return EINVAL;
    __atomic_fetch_add(&c->flags, WAITER, __ATOMIC_SEQ_CST);
    uint32_t sequence = __atomic_load_n(&c->sequence, __ATOMIC_SEQ_CST);
    int kept = errno, result = pthread_mutex_unlock(mutex);
    if (result != 0) {
        __atomic_fetch_sub(&c->flags, WAITER, __ATOMIC_SEQ_CST);
        return result;
    }
    int op = FUTEX_WAIT_BITSET | (clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0);
    struct timespec zero = {0, 0};
    const struct timespec *until = at != NULL && at->tv_sec < 0 ? &zero : at;
    long rc = syscall(SYS_futex, &c->sequence, op, sequence, until, NULL, FUTEX_BITSET_MATCH_ANY);
    int outcome = rc == -1 && errno == ETIMEDOUT ? ETIMEDOUT : 0;
    errno = kept;
    __atomic_fetch_sub(&c->flags, WAITER, __ATOMIC_SEQ_CST);
    result = pthread_mutex_lock(mutex);
    return result != 0 ? result : outcome;
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    return wait(cond, mutex, CLOCK_MONOTONIC, NULL);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at) {
    uint32_t flags = ((struct condition *)cond)->flags;
    return wait(cond, mutex, flags & MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, at);
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *at) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return EINVAL;
    return wait(cond, mutex, clock, at);
}
