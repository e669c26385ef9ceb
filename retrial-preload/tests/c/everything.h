/* One object of each kind, and every call on them that may wait, in competition. */
#ifndef EVERYTHING_H
#define EVERYTHING_H

#include "check.h"
#include <threads.h>

struct everything {
    pthread_mutex_t mutexes[KINDS];
    pthread_rwlock_t rw[2];
    pthread_spinlock_t spin;
    pthread_cond_t cond;
    mtx_t mtx;
    cnd_t cnd;
};

/* What a program does around each call. */
#ifndef CALL
#define CALL(call) (call)
#endif

/* What a holder does meanwhile: the others meet it. */
#ifndef HOLD
#define HOLD() sched_yield()
#endif

static inline void init_everything(struct everything *e) {
    for (int i = 0; i < KINDS; i++)
        init_kind(&e->mutexes[i], kind_at(i));
    about[0] = 0;
    for (int i = 0; i < 2; i++) {
        pthread_rwlockattr_t attr;
        CHECK_EQ(pthread_rwlockattr_init(&attr), 0);
        CHECK_EQ(pthread_rwlockattr_setkind_np(&attr, i ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP
                                                        : PTHREAD_RWLOCK_PREFER_READER_NP), 0);
        CHECK_EQ(pthread_rwlock_init(&e->rw[i], &attr), 0);
    }
    CHECK_EQ(pthread_spin_init(&e->spin, PTHREAD_PROCESS_PRIVATE), 0);
    CHECK_EQ(pthread_cond_init(&e->cond, NULL), 0);
    CHECK_EQ(mtx_init(&e->mtx, mtx_timed), thrd_success);
    CHECK_EQ(cnd_init(&e->cnd), thrd_success);
}

/* Every call once. */
static inline void use_everything(struct everything *e) {
    struct timespec near = in_ms(CLOCK_REALTIME, 1);
    for (int i = 0; i < KINDS; i++) {
        pthread_mutex_t *m = &e->mutexes[i];
        CHECK_EQ(CALL(pthread_mutex_lock(m)), 0);
        HOLD();
        int result = CALL(pthread_cond_timedwait(&e->cond, m, &near));
        CHECK(result == 0 || result == ETIMEDOUT);
        CHECK_EQ(CALL(pthread_cond_broadcast(&e->cond)), 0);
        CHECK_EQ(CALL(pthread_mutex_unlock(m)), 0);
        while ((result = CALL(pthread_mutex_timedlock(m, &near))) == ETIMEDOUT)
            near = in_ms(CLOCK_REALTIME, 1);
        CHECK_EQ(result, 0);
        CHECK_EQ(CALL(pthread_mutex_unlock(m)), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(CALL(pthread_rwlock_rdlock(&e->rw[i])), 0);
        HOLD();
        CHECK_EQ(CALL(pthread_rwlock_unlock(&e->rw[i])), 0);
        CHECK_EQ(CALL(pthread_rwlock_wrlock(&e->rw[i])), 0);
        HOLD();
        CHECK_EQ(CALL(pthread_rwlock_unlock(&e->rw[i])), 0);
    }
    CHECK_EQ(CALL(pthread_spin_lock(&e->spin)), 0);
    HOLD();
    CHECK_EQ(CALL(pthread_spin_unlock(&e->spin)), 0);
    CHECK_EQ(CALL(mtx_lock(&e->mtx)), thrd_success);
    HOLD();
    near = in_ms(CLOCK_REALTIME, 1);
    int result = CALL(cnd_timedwait(&e->cnd, &e->mtx, &near));
    CHECK(result == thrd_success || result == thrd_timedout);
    CHECK_EQ(CALL(cnd_broadcast(&e->cnd)), thrd_success);
    CHECK_EQ(CALL(mtx_unlock(&e->mtx)), thrd_success);
}

#endif
