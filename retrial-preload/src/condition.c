/* Waiting on a condition or a semaphore, in C: a thread that is cancelled, or jumps out of a handler of a
 * signal, leaves these frames in the middle, and the frames between its program and the system call must be
 * such that nothing is lost by that. What a wait is, condition/wait.rs says. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* A thread's own record, thread.rs. In the static block: found without a call, and never allocated. */
HIDDEN __thread _Alignas(64) __attribute__((tls_model("initial-exec"))) unsigned char retrial_thread[512];

HIDDEN void *retrial_current_thread(void) { return retrial_thread; }

/* What libc has. */
HIDDEN int (*retrial_real_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
HIDDEN int (*retrial_real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
HIDDEN int (*retrial_real_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                                          const struct timespec *);

/* As in condition/wait.rs; only the fields that are used here have names. */
struct wait {
    uint32_t *word;
    uint32_t expected;
    int32_t op;
    struct timespec until;
    int32_t result;
    uint32_t bits;
    uint64_t rest[16];
};

/* Libc's list of clean-up handlers by addresses on the stack. The other kind, a jump buffer each, stays in
 * the list when a handler of a signal jumps out of the wait. This kind is called then: as in libc, whose
 * waits use it too. */
extern void _pthread_cleanup_push(struct _pthread_cleanup_buffer *, void (*)(void *), void *);
extern void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *, int execute);

enum { PASS_ON = -1, NO_CLOCK = -1, OWN_CLOCK = -2 };

int retrial_condition_begin(struct wait *, pthread_cond_t *, pthread_mutex_t *, int clock,
                            const struct timespec *, void *caller, void *thread);
int retrial_condition_goes_on(struct wait *);
int retrial_condition_end(struct wait *);
void retrial_condition_cancelled(void *);

static int wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int clock, const struct timespec *at,
                void *caller, void *thread) {
    struct wait w;
    int result = retrial_condition_begin(&w, cond, mutex, clock, at, caller, thread);
    if (result == PASS_ON) {
        if (clock == NO_CLOCK)
            return retrial_real_cond_wait(cond, mutex);
        if (clock == OWN_CLOCK)
            return retrial_real_cond_timedwait(cond, mutex, at);
        return retrial_real_cond_clockwait(cond, mutex, clock, at);
    }
    if (result != 0)
        return result;
    int kept = errno;
    do {
        int type;
        /* For the call alone: a handler that jumps out of it leaves the condition, and one that jumps out of
         * what follows would do so amid that. */
        struct _pthread_cleanup_buffer cleanup;
        _pthread_cleanup_push(&cleanup, retrial_condition_cancelled, &w);
        /* As libc does around system calls that are cancellation points: acts on a request that is
         * pending, and on one that comes in the call. */
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
        long rc = syscall(SYS_futex, w.word, w.op, w.expected, &w.until, NULL, w.bits);
        int error = rc == -1 ? errno : 0;
        pthread_setcanceltype(type, NULL);
        _pthread_cleanup_pop(&cleanup, 0);
        w.result = error;
    } while (retrial_condition_goes_on(&w));
    errno = kept;
    return retrial_condition_end(&w);
}

HIDDEN int retrial_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, void *caller, void *thread) {
    return wait(cond, mutex, NO_CLOCK, NULL, caller, thread);
}

HIDDEN int retrial_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *at, void *caller, void *thread) {
    return wait(cond, mutex, OWN_CLOCK, at, caller, thread);
}

HIDDEN int retrial_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                                  const struct timespec *at, void *caller, void *thread) {
    /* A clock of ours is none of the caller's. */
    return clock < 0 ? EINVAL : wait(cond, mutex, clock, at, caller, thread);
}

static int in_c11(int result) {
    switch (result) {
    case 0:
        return thrd_success;
    case ETIMEDOUT:
        return thrd_timedout;
    case EBUSY:
        return thrd_busy;
    case ENOMEM:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

HIDDEN int retrial_cnd_wait(cnd_t *cond, mtx_t *mutex, void *caller, void *thread) {
    return in_c11(retrial_cond_wait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex, caller, thread));
}

HIDDEN int retrial_cnd_timedwait(cnd_t *cond, mtx_t *mutex, const struct timespec *at, void *caller,
                                 void *thread) {
    return in_c11(
        retrial_cond_timedwait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex, at, caller, thread));
}

/* Semaphores are libc's: what waits here is its own call. One that finds the semaphore at 0 is timed. */
HIDDEN int (*retrial_real_sem_wait)(sem_t *);
HIDDEN int (*retrial_real_sem_timedwait)(sem_t *, const struct timespec *);
HIDDEN int (*retrial_real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);

/* As in event.rs. */
struct event {
    uint64_t all[6];
};

void retrial_semaphore_begin(struct event *, sem_t *, void *caller, void *thread);
void retrial_semaphore_end(void *);
void retrial_resolve(void);

/* Libc has the value in the first half of the first 64 bits, where a 64-bit machine has the lower one. */
static int is_zero(sem_t *sem) { return __atomic_load_n((uint32_t *)sem, __ATOMIC_RELAXED) == 0; }

#define TIMED(result, call)                                                                        \
    do {                                                                                           \
        struct event event;                                                                        \
        struct _pthread_cleanup_buffer cleanup;                                                    \
        retrial_semaphore_begin(&event, sem, caller, thread);                                      \
        _pthread_cleanup_push(&cleanup, retrial_semaphore_end, &event);                            \
        (result) = (call);                                                                         \
        _pthread_cleanup_pop(&cleanup, 1);                                                         \
    } while (0)

HIDDEN int retrial_sem_wait(sem_t *sem, void *caller, void *thread) {
    int result;
    if (!retrial_real_sem_wait)
        retrial_resolve();
    if (!is_zero(sem))
        return retrial_real_sem_wait(sem);
    TIMED(result, retrial_real_sem_wait(sem));
    return result;
}

HIDDEN int retrial_sem_timedwait(sem_t *sem, const struct timespec *at, void *caller, void *thread) {
    int result;
    if (!retrial_real_sem_timedwait)
        retrial_resolve();
    if (!is_zero(sem))
        return retrial_real_sem_timedwait(sem, at);
    TIMED(result, retrial_real_sem_timedwait(sem, at));
    return result;
}

HIDDEN int retrial_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *at, void *caller,
                                 void *thread) {
    int result;
    if (!retrial_real_sem_clockwait)
        retrial_resolve();
    if (!is_zero(sem))
        return retrial_real_sem_clockwait(sem, clock, at);
    TIMED(result, retrial_real_sem_clockwait(sem, clock, at));
    return result;
}

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "mtx_t is a mutex of libc");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "cnd_t is a condition of libc");
