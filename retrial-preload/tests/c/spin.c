/* Spin locks: exclusion, EBUSY, private and shared, and no byte beyond the four. */
#include "check.h"

struct counter {
    uint32_t before;
    pthread_spinlock_t spin;
    uint32_t after;
    struct torn torn;
    int rounds;
};

static void *tries(void *arg) {
    struct counter *c = arg;
    RETURNS(pthread_spin_trylock(&c->spin), EBUSY);
    return NULL;
}

static void *unlocks(void *arg) {
    struct counter *c = arg;
    RETURNS(pthread_spin_unlock(&c->spin), 0);
    return NULL;
}

static void *count(void *arg) {
    struct counter *c = arg;
    for (int i = 0; i < c->rounds; i++) {
        if (i % 2)
            RETURNS(pthread_spin_lock(&c->spin), 0);
        else
            for (int result; (result = pthread_spin_trylock(&c->spin)) != 0; sched_yield())
                CHECK_EQ(result, EBUSY);
        torn_step(&c->torn);
        RETURNS(pthread_spin_unlock(&c->spin), 0);
    }
    return NULL;
}

int main(void) {
    enum { THREADS = 4, PROCESSES = 4 };
    struct counter *c = shared_memory(sizeof *c);
    for (int i = 0; i < 4; i++) {
        int pshared = i % 2 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
        *c = (struct counter){.before = 0xa5a5a5a5, .after = 0xa5a5a5a5, .rounds = 50000};
        RETURNS(pthread_spin_init(&c->spin, pshared), 0);

        RETURNS(pthread_spin_lock(&c->spin), 0);
        RETURNS(pthread_spin_trylock(&c->spin), EBUSY);
        finish(start(tries, c));
        RETURNS(pthread_spin_unlock(&c->spin), 0);
        RETURNS(pthread_spin_trylock(&c->spin), 0);
        finish(start(tries, c));
        if (pshared)
            reap(spawn(tries, c));
        finish(start(unlocks, c)); /* anyone may */

        run_threads(THREADS, count, c);
        CHECK_EQ(c->torn.left, THREADS * c->rounds);
        if (pshared) {
            run_children(PROCESSES, count, c);
            CHECK_EQ(c->torn.left, (THREADS + PROCESSES) * c->rounds);
        }
        RETURNS(pthread_spin_destroy(&c->spin), 0);
        CHECK_EQ(c->before, 0xa5a5a5a5);
        CHECK_EQ(c->after, 0xa5a5a5a5);
    }
}
