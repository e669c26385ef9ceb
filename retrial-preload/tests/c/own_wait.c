/* A thread that locks a normal mutex of its own again waits for itself, mostly for ever. Meanwhile the
 * memory may become another mutex, which the waiting thread does not get: it still waits for the first.
 * The same for a thread that waits for a mutex whose holder has ended. */
#include "check.h"
#include <sys/syscall.h>

enum { LOOKS_MS = 600 }; /* longer than anybody waits between two looks */

struct waiter {
    pthread_mutex_t *mutex;
    struct timespec until; /* 0: for ever */
    bool is_own;
    pthread_t thread;
    atomic_int tid, result;
};

static void *wait_for_mutex(void *arg) {
    struct waiter *w = arg;
    if (w->is_own)
        RETURNS(pthread_mutex_lock(w->mutex), 0);
    w->tid = (int)syscall(SYS_gettid);
    errno = ERRNO_KEPT;
    int result = w->until.tv_sec == 0 ? pthread_mutex_lock(w->mutex)
                                      : pthread_mutex_timedlock(w->mutex, &w->until);
    CHECK_EQ(errno, ERRNO_KEPT);
    w->result = result;
    return NULL;
}

/* Whether a thread of ours sleeps in the kernel. */
static bool sleeps(int tid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *name_end = strrchr(text, ')');
    CHECK(name_end != NULL);
    return name_end[2] == 'S';
}

/* Starts a thread that waits for a new mutex. Threads wait there for ever: the memory stays. */
static struct waiter *start_waiter(struct kind kind, bool is_own, struct timespec until) {
    struct waiter *w = calloc(1, sizeof *w);
    CHECK(w != NULL);
    *w = (struct waiter){.is_own = is_own, .until = until, .result = -1};
    w->mutex = calloc(1, sizeof *w->mutex);
    CHECK(w->mutex != NULL);
    init_kind(w->mutex, kind);
    if (!is_own)
        CHECK_EQ(elsewhere(pthread_mutex_lock, w->mutex), 0);
    w->thread = start(wait_for_mutex, w);
    AWAIT(w->tid != 0);
    return w;
}

/* Waits until the thread sleeps; often seen so, as it may doze before it waits for good. */
static void await_sleep(struct waiter *w) {
    for (int seen = 0; seen < 100; seen += sleeps(w->tid))
        sched_yield();
    RETURNS(pthread_mutex_trylock(w->mutex), EBUSY);
}

/* The memory becomes another mutex. */
static void replace(struct waiter *w, struct kind kind, bool is_static) {
    await_sleep(w);
    if (is_static)
        *w->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    else
        init_kind(w->mutex, kind);
}

static void use(pthread_mutex_t *mutex) {
    RETURNS(pthread_mutex_trylock(mutex), 0);
    RETURNS(pthread_mutex_unlock(mutex), 0);
    RETURNS(pthread_mutex_lock(mutex), 0);
    RETURNS(pthread_mutex_unlock(mutex), 0);
}

int main(void) {
    const struct timespec never = {0, 0};
    struct waiter *waiters[3 * KINDS], *timed[KINDS];
    int count = 0, timed_count = 0;
    for (int i = 0; i < KINDS; i++) {
        struct kind kind = kind_at(i);
        if (kind.type != PTHREAD_MUTEX_NORMAL && kind.type != PTHREAD_MUTEX_ADAPTIVE_NP)
            continue;
        for (int is_static = 0; is_static < 2; is_static++) {
            struct waiter *w = start_waiter(kind, true, never);
            replace(w, kind, is_static);
            waiters[count++] = w;
        }
        if (!kind.pshared && !kind.robust) {
            struct waiter *w = start_waiter(kind, false, never);
            replace(w, kind, false);
            waiters[count++] = w;
        }
        timed[timed_count++] = start_waiter(kind, true, in_ms(CLOCK_REALTIME, 100));

        if (!kind.robust) {
            /* Another thread unlocks it, which wakes the one that waits. */
            struct waiter *w = start_waiter(kind, true, never);
            await_sleep(w);
            CHECK_EQ(w->result, -1);
            RETURNS(pthread_mutex_unlock(w->mutex), 0);
            finish(w->thread);
            CHECK_EQ(w->result, 0);
            RETURNS(pthread_mutex_trylock(w->mutex), EBUSY);
            RETURNS(pthread_mutex_unlock(w->mutex), 0);
            use(w->mutex);
            RETURNS(pthread_mutex_destroy(w->mutex), 0);
        }
    }

    /* Used alone for longer than anybody who waits goes without a look. */
    struct timespec end = in_ms(CLOCK_MONOTONIC, LOOKS_MS);
    while (!reached(CLOCK_MONOTONIC, end)) {
        for (int i = 0; i < count; i++)
            use(waiters[i]->mutex);
        sched_yield();
    }
    for (int i = 0; i < count; i++)
        CHECK_EQ(waiters[i]->result, -1);

    for (int i = 0; i < timed_count; i++) {
        finish(timed[i]->thread);
        CHECK_EQ(timed[i]->result, ETIMEDOUT);
        CHECK(reached(CLOCK_REALTIME, timed[i]->until));
    }
}
