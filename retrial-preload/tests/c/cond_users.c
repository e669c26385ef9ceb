/* A mutex that somebody will come back to from a condition is not destroyed, whoever provides which of the two. */
#include "check.h"

struct scene {
    pthread_mutex_t m;
    pthread_cond_t cond;
    bool waits, done;
};

static void *waits(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->waits = true;
    while (!s->done)
        RETURNS(pthread_cond_wait(&s->cond, &s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    return NULL;
}

static void is_kept(struct scene *s) {
    pthread_t threads[2] = {start(waits, s), start(waits, s)};
    for (bool ready = false; !ready; sched_yield()) {
        RETURNS(pthread_mutex_lock(&s->m), 0);
        ready = s->waits;
        RETURNS(pthread_mutex_unlock(&s->m), 0);
    }
    RETURNS(pthread_mutex_destroy(&s->m), EBUSY);
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->done = true;
    RETURNS(pthread_cond_broadcast(&s->cond), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    finish(threads[0]);
    finish(threads[1]);
    RETURNS(pthread_mutex_destroy(&s->m), 0);
}

static void *waits_when_cancelled(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    pthread_cleanup_push((void (*)(void *))(void (*)(void))pthread_mutex_unlock, &s->m);
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    pthread_cond_wait(&s->cond, &s->m);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    for (int protocol = PTHREAD_PRIO_NONE; protocol <= PTHREAD_PRIO_INHERIT; protocol++)
        for (int i = 0; i < KINDS / 2; i++) { /* libc looks at no users of robust ones */
            struct scene s = {.cond = PTHREAD_COND_INITIALIZER};
            struct kind k = kind_at(i);
            k.protocol = protocol;
            init_kind(&s.m, k);
            is_kept(&s);

            init_kind(&s.m, k);
            CHECK(finish(start(waits_when_cancelled, &s)) == PTHREAD_CANCELED);
            RETURNS(pthread_mutex_lock(&s.m), 0);
            RETURNS(pthread_cond_timedwait(&s.cond, &s.m, &PAST), ETIMEDOUT);
            RETURNS(pthread_mutex_unlock(&s.m), 0);
            RETURNS(pthread_mutex_destroy(&s.m), 0);
            RETURNS(pthread_cond_destroy(&s.cond), 0);
        }
}
