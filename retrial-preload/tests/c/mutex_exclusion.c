/* Mutual exclusion of every kind, by all four ways to lock at once, among threads and processes. */
#include "check.h"

struct counter {
    pthread_mutex_t m;
    struct torn torn;
    bool recursive;
    int rounds;
};

static void lock_somehow(pthread_mutex_t *m, int i) {
    struct timespec deadline;
    switch (i % 4) {
    case 0:
        RETURNS(pthread_mutex_lock(m), 0);
        break;
    case 1:
        for (int result; (result = pthread_mutex_trylock(m)) != 0; sched_yield())
            CHECK_EQ(result, EBUSY);
        break;
    case 2:
        deadline = in_ms(CLOCK_REALTIME, 60000);
        RETURNS(pthread_mutex_timedlock(m, &deadline), 0);
        break;
    case 3: /* a deadline so near that the other branch is taken too */
        for (;;) {
            CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &deadline), 0);
            int result = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &deadline);
            if (result == 0)
                break;
            CHECK_EQ(result, ETIMEDOUT);
            sched_yield();
        }
    }
}

static void *count(void *arg) {
    struct counter *c = arg;
    for (int i = 0; i < c->rounds; i++) {
        lock_somehow(&c->m, i);
        if (c->recursive)
            lock_somehow(&c->m, i / 4);
        torn_step(&c->torn);
        if (i % 64 == 0)
            sched_yield(); /* a holder that is not running */
        if (c->recursive)
            RETURNS(pthread_mutex_unlock(&c->m), 0);
        RETURNS(pthread_mutex_unlock(&c->m), 0);
    }
    return NULL;
}

/* Whoever gets a mutex after its last other user may unmap it: that user's unlock is past it. */
struct page {
    pthread_mutex_t m;
    atomic_int held;
};

static void *last_but_one(void *arg) {
    struct page *p = arg;
    RETURNS(pthread_mutex_lock(&p->m), 0);
    p->held = 1;
    sched_yield();
    RETURNS(pthread_mutex_unlock(&p->m), 0);
    return NULL;
}

static void unlock_then_unmap(struct kind k) {
    for (int round = 0; round < 50; round++) {
        struct page *p = shared_memory(sizeof *p);
        init_kind(&p->m, k);
        pthread_t other = start(last_but_one, p);
        AWAIT(p->held);
        RETURNS(pthread_mutex_lock(&p->m), 0);
        RETURNS(pthread_mutex_unlock(&p->m), 0);
        if (round % 2)
            RETURNS(pthread_mutex_destroy(&p->m), 0);
        CHECK_EQ(munmap(p, sizeof *p), 0);
        finish(other);
    }
}

int main(void) {
    enum { THREADS = 8, PROCESSES = 4, ROUNDS = 4000 };
    struct counter *c = shared_memory(sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        struct kind k = kind_at(i);
        *c = (struct counter){.recursive = k.type == PTHREAD_MUTEX_RECURSIVE, .rounds = ROUNDS};
        init_kind(&c->m, k);
        long expected = THREADS * ROUNDS;
        run_threads(THREADS, count, c);
        if (k.pshared) {
            run_children(PROCESSES, count, c);
            expected += PROCESSES * ROUNDS;
        }
        CHECK_EQ(c->torn.left, expected);
        CHECK_EQ(c->torn.right, expected);
        RETURNS(pthread_mutex_destroy(&c->m), 0);
        unlock_then_unmap(k);
    }
}
