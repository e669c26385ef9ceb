/* Mutexes of the inheriting and protecting protocols: they lock, unlock, time out, count, outlive
 * their owner and go with conditions like the others. */
#include "check.h"

static int trylock_and_unlock(pthread_mutex_t *m) {
    int result = pthread_mutex_trylock(m);
    return result ? result : pthread_mutex_unlock(m);
}

static int past_timedlock(pthread_mutex_t *m) { return pthread_mutex_timedlock(m, &PAST); }
static int few_timedlock(pthread_mutex_t *m) { return pthread_mutex_timedlock(m, &NS_TOO_FEW); }
static int many_timedlock(pthread_mutex_t *m) { return pthread_mutex_timedlock(m, &NS_TOO_MANY); }

static int short_timedlock(pthread_mutex_t *m) {
    struct timespec deadline = in_ms(CLOCK_REALTIME, 2);
    int result = pthread_mutex_timedlock(m, &deadline);
    if (result == ETIMEDOUT)
        CHECK(reached(CLOCK_REALTIME, deadline));
    return result;
}

static void is_busy_elsewhere(pthread_mutex_t *m) {
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    CHECK_EQ(elsewhere(past_timedlock, m), ETIMEDOUT);
    CHECK_EQ(elsewhere(short_timedlock, m), ETIMEDOUT);
    CHECK_EQ(elsewhere(few_timedlock, m), EINVAL);
    CHECK_EQ(elsewhere(many_timedlock, m), EINVAL);
}

static void behaves(pthread_mutex_t *m, struct kind k) {
    RETURNS(pthread_mutex_lock(m), 0);
    is_busy_elsewhere(m);
    if (k.type == PTHREAD_MUTEX_RECURSIVE) {
        RETURNS(pthread_mutex_lock(m), 0);
        RETURNS(pthread_mutex_trylock(m), 0);
        RETURNS(past_timedlock(m), 0);
        for (int depth = 4; depth > 1; depth--)
            RETURNS(pthread_mutex_unlock(m), 0);
        is_busy_elsewhere(m);
    } else if (k.type == PTHREAD_MUTEX_ERRORCHECK) {
        RETURNS(pthread_mutex_lock(m), EDEADLK);
        RETURNS(pthread_mutex_trylock(m), EDEADLK);
        RETURNS(past_timedlock(m), EDEADLK);
    } else {
        RETURNS(pthread_mutex_trylock(m), EBUSY);
        RETURNS(short_timedlock(m), ETIMEDOUT);
    }
    CHECK_EQ(elsewhere(pthread_mutex_unlock, m), EPERM); /* whatever the type */
    if (!k.robust)
        RETURNS(pthread_mutex_destroy(m), EBUSY);
    RETURNS(pthread_mutex_unlock(m), 0);
    RETURNS(pthread_mutex_unlock(m), EPERM);
    CHECK_EQ(elsewhere(trylock_and_unlock, m), 0);
    RETURNS(many_timedlock(m), 0);
    RETURNS(pthread_mutex_unlock(m), 0);
}

struct counter {
    pthread_mutex_t m;
    struct torn torn;
    atomic_int held, arrived, heirs;
    int rounds;
};

static void *count(void *arg) {
    struct counter *c = arg;
    for (int i = 0; i < c->rounds; i++) {
        RETURNS(pthread_mutex_lock(&c->m), 0);
        torn_step(&c->torn);
        if (i % 64 == 0)
            sched_yield();
        RETURNS(pthread_mutex_unlock(&c->m), 0);
    }
    return NULL;
}

static void exclusion(struct counter *c, struct kind k) {
    run_threads(4, count, c);
    CHECK_EQ(c->torn.left, 4 * c->rounds);
    if (k.pshared) {
        run_children(4, count, c);
        CHECK_EQ(c->torn.left, 8 * c->rounds);
    }
}

/* Robust as well: the owner's death is told, by lock and by trylock. */
static void *dies(void *arg) {
    struct counter *c = arg;
    RETURNS(pthread_mutex_lock(&c->m), 0);
    c->held = 1;
    return NULL;
}

static void *is_killed(void *arg) {
    dies(arg);
    for (;;)
        pause();
    return NULL;
}

/* Who waits meanwhile inherits, and who waits behind the heir gets it repaired. */
static void *inherits(void *arg) {
    struct counter *c = arg;
    c->arrived++;
    int result = pthread_mutex_lock(&c->m);
    if (result == EOWNERDEAD) {
        c->heirs++;
        RETURNS(pthread_mutex_consistent(&c->m), 0);
    } else {
        CHECK_EQ(result, 0);
    }
    RETURNS(pthread_mutex_unlock(&c->m), 0);
    return NULL;
}

static void owner_is_killed_while_others_wait(struct counter *c, struct kind k) {
    c->held = c->arrived = c->heirs = 0;
    pid_t owner = spawn(is_killed, c), waiters[2];
    AWAIT(c->held);
    for (int i = 0; i < 2; i++)
        waiters[i] = spawn(inherits, c);
    AWAIT(c->arrived == 2);
    CHECK_EQ(kill(owner, SIGKILL), 0);
    reap_killed(owner);
    for (int i = 0; i < 2; i++)
        reap(waiters[i]);
    CHECK_EQ(c->heirs, 1);
    behaves(&c->m, k);
}

static void owner_dies(struct counter *c, struct kind k) {
    if (k.pshared)
        owner_is_killed_while_others_wait(c, k);
    for (int way = 0; way < 4; way++) {
        if (k.pshared && way % 2) {
            c->held = 0;
            pid_t owner = spawn(is_killed, c);
            AWAIT(c->held);
            CHECK_EQ(kill(owner, SIGKILL), 0);
            reap_killed(owner);
        } else {
            finish(start(dies, c));
        }
        RETURNS(way / 2 ? pthread_mutex_trylock(&c->m) : pthread_mutex_lock(&c->m), EOWNERDEAD);
        is_busy_elsewhere(&c->m);
        RETURNS(pthread_mutex_consistent(&c->m), 0);
        RETURNS(pthread_mutex_unlock(&c->m), 0);
        behaves(&c->m, k);
    }
    finish(start(dies, c));
    RETURNS(pthread_mutex_lock(&c->m), EOWNERDEAD);
    RETURNS(pthread_mutex_unlock(&c->m), 0);
    RETURNS(pthread_mutex_lock(&c->m), ENOTRECOVERABLE);
    RETURNS(past_timedlock(&c->m), ENOTRECOVERABLE);
    RETURNS(pthread_mutex_consistent(&c->m), EINVAL);
    RETURNS(pthread_mutex_destroy(&c->m), 0);
    init_kind(&c->m, k);
}

/* With a condition: the mutex is let go, and taken again by its own protocol. */
struct game {
    pthread_mutex_t *m;
    pthread_cond_t cond;
    int side, turn;
};

enum { TURNS = 100 };

static void *player(void *arg) {
    struct game *g = arg;
    RETURNS(pthread_mutex_lock(g->m), 0);
    int side = g->side++;
    for (int i = 0; i < TURNS; i++) {
        while (g->turn % 2 != side) {
            struct timespec far = in_ms(CLOCK_REALTIME, 60000);
            if (i % 2)
                RETURNS(pthread_cond_wait(&g->cond, g->m), 0);
            else
                RETURNS(pthread_cond_timedwait(&g->cond, g->m, &far), 0);
        }
        g->turn++;
        RETURNS(pthread_cond_signal(&g->cond), 0);
    }
    RETURNS(pthread_cond_timedwait(&g->cond, g->m, &NS_TOO_MANY), EINVAL);
    RETURNS(pthread_mutex_unlock(g->m), 0);
    return NULL;
}

static void with_condition(pthread_mutex_t *m) {
    struct game g = {.m = m, .cond = PTHREAD_COND_INITIALIZER};
    run_threads(2, player, &g);
    CHECK_EQ(g.turn, 2 * TURNS);
    RETURNS(pthread_mutex_lock(m), 0);
    RETURNS(pthread_cond_timedwait(&g.cond, m, &PAST), ETIMEDOUT);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    RETURNS(pthread_mutex_unlock(m), 0);
    RETURNS(pthread_cond_destroy(&g.cond), 0);
}

static bool inheriting_is_supported(void) {
    pthread_mutexattr_t attr;
    pthread_mutex_t m;
    CHECK_EQ(pthread_mutexattr_init(&attr), 0);
    CHECK_EQ(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT), 0);
    return pthread_mutex_init(&m, &attr) == 0;
}

static void inheriting(void) {
    struct counter *c = shared_memory(sizeof *c);
    for (int i = 0; i < KINDS; i++) {
        struct kind k = kind_at(i);
        k.protocol = PTHREAD_PRIO_INHERIT;
        *c = (struct counter){.rounds = 500};
        init_kind(&c->m, k);
        behaves(&c->m, k);
        exclusion(c, k);
        with_condition(&c->m);
        if (k.robust)
            owner_dies(c, k);
        RETURNS(pthread_mutex_destroy(&c->m), 0);
        RETURNS(pthread_mutex_lock(&c->m), EINVAL);
    }
    about[0] = 0;
}

/* Protecting: whoever holds it runs at its ceiling; who is above, or has no such priority, may not
 * have it. Only here may errno change. */
enum { PRIORITY = 2, CEILING = 5 };

static int init_protecting(pthread_mutex_t *m, int type, int ceiling, int robust) {
    pthread_mutexattr_t attr;
    CHECK_EQ(pthread_mutexattr_init(&attr), 0);
    CHECK_EQ(pthread_mutexattr_settype(&attr, type), 0);
    CHECK_EQ(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT), 0);
    CHECK_EQ(pthread_mutexattr_setprioceiling(&attr, ceiling), 0);
    CHECK_EQ(pthread_mutexattr_setrobust(&attr, robust), 0);
    int result = pthread_mutex_init(m, &attr);
    CHECK_EQ(pthread_mutexattr_destroy(&attr), 0);
    return result;
}

static int own_priority(void) {
    struct sched_param param;
    CHECK_EQ(sched_getparam(0, &param), 0);
    return param.sched_priority;
}

static void *protecting_in_fifo(void *arg) {
    pthread_mutex_t m;
    for (int type = PTHREAD_MUTEX_NORMAL; type <= PTHREAD_MUTEX_ADAPTIVE_NP; type++) {
        CHECK_EQ(init_protecting(&m, type, CEILING, PTHREAD_MUTEX_STALLED), 0);
        CHECK_EQ(own_priority(), PRIORITY);
        RETURNS(pthread_mutex_lock(&m), 0);
        CHECK_EQ(own_priority(), CEILING);
        if (type == PTHREAD_MUTEX_RECURSIVE) {
            RETURNS(pthread_mutex_lock(&m), 0);
            RETURNS(pthread_mutex_trylock(&m), 0);
            RETURNS(pthread_mutex_unlock(&m), 0);
            RETURNS(pthread_mutex_unlock(&m), 0);
        } else if (type == PTHREAD_MUTEX_ERRORCHECK) {
            RETURNS(pthread_mutex_lock(&m), EDEADLK);
            RETURNS(pthread_mutex_trylock(&m), EDEADLK);
        } else {
            RETURNS(pthread_mutex_trylock(&m), EBUSY);
        }
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &m), EBUSY);
        /* In a thread that ends: glibc leaves the raised priority with who timed out. */
        CHECK_EQ(elsewhere(past_timedlock, &m), ETIMEDOUT);
        RETURNS(pthread_mutex_unlock(&m), 0);
        CHECK_EQ(own_priority(), PRIORITY);
        RETURNS(pthread_mutex_trylock(&m), 0);
        CHECK_EQ(own_priority(), CEILING);
        RETURNS(pthread_mutex_unlock(&m), 0);
        with_condition(&m);
        CHECK_EQ(own_priority(), PRIORITY);

        int old;
        CHECK_EQ(pthread_mutex_getprioceiling(&m, &old), 0);
        CHECK_EQ(old, CEILING);
        CHECK_EQ(pthread_mutex_setprioceiling(&m, PRIORITY - 1, &old), 0);
        CHECK_EQ(old, CEILING);
        CHECK_EQ(pthread_mutex_lock(&m), EINVAL);
        CHECK_EQ(pthread_mutex_trylock(&m), EINVAL);
        CHECK_EQ(past_timedlock(&m), EINVAL);
        RETURNS(pthread_mutex_destroy(&m), 0);
    }
    return arg;
}

/* Once per thread: glibc counts the ceiling even of a refused lock, and lets the next one pass. */
enum lock_by { LOCK, TRYLOCK, PAST_TIMEDLOCK };

struct attempt {
    pthread_mutex_t *m;
    enum lock_by by;
};

static void *is_refused(void *arg) {
    struct attempt *a = arg;
    CHECK_EQ(a->by == LOCK      ? pthread_mutex_lock(a->m)
             : a->by == TRYLOCK ? pthread_mutex_trylock(a->m)
                                : past_timedlock(a->m),
             EINVAL);
    return arg;
}

static void protecting(void) {
    pthread_mutex_t m;
    CHECK_EQ(init_protecting(&m, PTHREAD_MUTEX_NORMAL, CEILING, PTHREAD_MUTEX_ROBUST), ENOTSUP);
    CHECK_EQ(init_protecting(&m, PTHREAD_MUTEX_NORMAL, CEILING, PTHREAD_MUTEX_STALLED), 0);
    for (enum lock_by by = LOCK; by <= PAST_TIMEDLOCK; by++)
        finish(start(is_refused, &(struct attempt){&m, by}));
    RETURNS(pthread_mutex_destroy(&m), 0);

    struct sched_param param = {.sched_priority = PRIORITY};
    pthread_attr_t attr;
    pthread_t thread;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED), 0);
    CHECK_EQ(pthread_attr_setschedpolicy(&attr, SCHED_FIFO), 0);
    CHECK_EQ(pthread_attr_setschedparam(&attr, &param), 0);
    int result = pthread_create(&thread, &attr, protecting_in_fifo, NULL);
    if (result == EPERM)
        return; /* the privilege is not ours */
    CHECK_EQ(result, 0);
    finish(thread);
}

int main(void) {
    if (inheriting_is_supported())
        inheriting();
    protecting();
}
