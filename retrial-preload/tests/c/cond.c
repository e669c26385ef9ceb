/* Conditions: no signal is lost, every return holds the mutex, deadlines are kept, memory is free
 * to be used again after destroy. */
#include "check.h"

static void init_cond(pthread_cond_t *cond, int pshared, clockid_t clock) {
    pthread_condattr_t attr;
    CHECK_EQ(pthread_condattr_init(&attr), 0);
    CHECK_EQ(pthread_condattr_setpshared(&attr, pshared), 0);
    CHECK_EQ(pthread_condattr_setclock(&attr, clock), 0);
    RETURNS(pthread_cond_init(cond, &attr), 0);
    CHECK_EQ(pthread_condattr_destroy(&attr), 0);
}

/* Checks that the calling thread holds `m`, and nothing but once. */
static void is_held(pthread_mutex_t *m, struct kind k) {
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    if (k.type == PTHREAD_MUTEX_ERRORCHECK)
        RETURNS(pthread_mutex_lock(m), EDEADLK);
    if (knows_owner(k)) {
        RETURNS(pthread_mutex_unlock(m), 0);
        RETURNS(pthread_mutex_unlock(m), EPERM);
        RETURNS(pthread_mutex_lock(m), 0);
    }
}

/* Two sides take turns, each turn a signal and a wait: one lost wake-up hangs. */
struct game {
    pthread_mutex_t m;
    pthread_cond_t cond;
    clockid_t clock;
    int rounds, side, turn;
};

static void *player(void *arg) {
    struct game *g = arg;
    RETURNS(pthread_mutex_lock(&g->m), 0);
    int side = g->side++;
    for (int i = 0; i < g->rounds; i++) {
        while (g->turn % 2 != side) {
            struct timespec far = in_ms(g->clock, 60000);
            if (i % 3 == 0)
                RETURNS(pthread_cond_wait(&g->cond, &g->m), 0);
            else if (i % 3 == 1)
                RETURNS(pthread_cond_timedwait(&g->cond, &g->m, &far), 0);
            else
                RETURNS(pthread_cond_clockwait(&g->cond, &g->m, g->clock, &far), 0);
        }
        g->turn++;
        if (i % 2)
            RETURNS(pthread_cond_signal(&g->cond), 0);
        else
            RETURNS(pthread_cond_broadcast(&g->cond), 0);
    }
    RETURNS(pthread_mutex_unlock(&g->m), 0);
    return NULL;
}

static void ping_pong(void) {
    struct game *g = shared_memory(sizeof *g);
    for (int i = 0; i < KINDS; i++)
        for (int variant = 0; variant < 4; variant++) {
            int cond_shared = variant / 2 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
            *g = (struct game){.clock = variant % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME,
                               .rounds = 100};
            init_kind(&g->m, kind_at(i));
            init_cond(&g->cond, cond_shared, g->clock);
            run_threads(2, player, g);
            CHECK_EQ(g->turn, 2 * g->rounds);
            if (kind_at(i).pshared && cond_shared) {
                g->side = 0;
                run_children(2, player, g);
                CHECK_EQ(g->turn, 4 * g->rounds);
            }
            RETURNS(pthread_cond_destroy(&g->cond), 0);
            RETURNS(pthread_mutex_destroy(&g->m), 0);
        }
    about[0] = 0;
    *g = (struct game){.m = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER,
                       .rounds = 1000};
    run_threads(2, player, g);
    memset(g, 0, sizeof *g);
    g->rounds = 1000;
    run_threads(2, player, g);
    CHECK_EQ(g->turn, 2 * g->rounds);
}

/* A bounded queue: what goes in comes out, once. Odd workers wait with deadlines that are near. */
enum { WORKERS = 4, ITEMS = 2000, SLOTS = 3 };

struct queue {
    pthread_mutex_t m;
    pthread_cond_t not_full, not_empty;
    atomic_int producers, consumers;
    int length, slots[SLOTS];
    long sum;
    bool broadcast;
};

static void wait_somehow(pthread_cond_t *cond, pthread_mutex_t *m, int worker) {
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
    clockid_t clock = clocks[worker / 2 % 2];
    if (worker % 2) {
        struct timespec near = in_ms(clock, 1);
        int result = clock == CLOCK_REALTIME ? pthread_cond_timedwait(cond, m, &near)
                                             : pthread_cond_clockwait(cond, m, clock, &near);
        if (result != ETIMEDOUT)
            CHECK_EQ(result, 0);
        else
            CHECK(reached(clock, near));
    } else {
        RETURNS(pthread_cond_wait(cond, m), 0);
    }
}

static void wake_somehow(struct queue *q, pthread_cond_t *cond) {
    if (q->broadcast)
        RETURNS(pthread_cond_broadcast(cond), 0);
    else
        RETURNS(pthread_cond_signal(cond), 0);
}

static void *produce(void *arg) {
    struct queue *q = arg;
    int worker = q->producers++;
    for (int item = 1; item <= ITEMS; item++) {
        RETURNS(pthread_mutex_lock(&q->m), 0);
        while (q->length == SLOTS)
            wait_somehow(&q->not_full, &q->m, worker);
        q->slots[q->length++] = item;
        if (item % 2)
            wake_somehow(q, &q->not_empty);
        RETURNS(pthread_mutex_unlock(&q->m), 0);
        if (item % 2 == 0)
            wake_somehow(q, &q->not_empty); /* allowed without the mutex as well */
    }
    return NULL;
}

static void *consume(void *arg) {
    struct queue *q = arg;
    int worker = q->consumers++;
    for (int i = 0; i < ITEMS; i++) {
        RETURNS(pthread_mutex_lock(&q->m), 0);
        while (q->length == 0)
            wait_somehow(&q->not_empty, &q->m, worker);
        q->sum += q->slots[--q->length];
        wake_somehow(q, &q->not_full);
        RETURNS(pthread_mutex_unlock(&q->m), 0);
    }
    return NULL;
}

static void bounded_queue(void) {
    for (int i = 0; i < 8; i++) {
        struct queue q = {.not_full = PTHREAD_COND_INITIALIZER,
                          .not_empty = PTHREAD_COND_INITIALIZER, .broadcast = i / 4};
        init_kind(&q.m, kind_at(i % 4));
        pthread_t threads[2 * WORKERS];
        for (int t = 0; t < 2 * WORKERS; t++)
            threads[t] = start(t % 2 ? produce : consume, &q);
        for (int t = 0; t < 2 * WORKERS; t++)
            finish(threads[t]);
        CHECK_EQ(q.length, 0);
        CHECK_EQ(q.sum, (long)WORKERS * ITEMS * (ITEMS + 1) / 2);
        RETURNS(pthread_cond_destroy(&q.not_full), 0);
        RETURNS(pthread_cond_destroy(&q.not_empty), 0);
    }
    about[0] = 0;
}

/* Deadlines, by the condition's clock and by the call's; the mutex is held whatever is returned. */
static void times_out(pthread_cond_t *cond, pthread_mutex_t *m, struct kind k, clockid_t clock,
                      bool clockwait) {
#define WAIT(deadline)                                                                             \
    (clockwait ? pthread_cond_clockwait(cond, m, clock, &deadline)                                 \
               : pthread_cond_timedwait(cond, m, &deadline))
    RETURNS(WAIT(PAST), ETIMEDOUT);
    is_held(m, k);
    RETURNS(WAIT(BEFORE_1970), ETIMEDOUT);
    is_held(m, k);
    RETURNS(WAIT(NS_TOO_FEW), EINVAL);
    is_held(m, k);
    RETURNS(WAIT(NS_TOO_MANY), EINVAL);
    is_held(m, k);
    struct timespec deadline = in_ms(clock, 2);
    int result;
    do
        result = WAIT(deadline);
    while (result == 0);
    CHECK_EQ(result, ETIMEDOUT);
    CHECK(reached(clock, deadline));
    is_held(m, k);
#undef WAIT
}

static void timeouts(void) {
    for (int i = 0; i < KINDS; i++) {
        pthread_mutex_t m;
        pthread_cond_t plain = PTHREAD_COND_INITIALIZER, monotonic, shared;
        struct kind k = kind_at(i);
        init_kind(&m, k);
        init_cond(&monotonic, PTHREAD_PROCESS_PRIVATE, CLOCK_MONOTONIC);
        init_cond(&shared, PTHREAD_PROCESS_SHARED, CLOCK_REALTIME);
        if (knows_owner(k)) { /* one must hold it to wait */
            RETURNS(pthread_cond_wait(&plain, &m), EPERM);
            RETURNS(pthread_cond_timedwait(&plain, &m, &PAST), EPERM);
            RETURNS(pthread_cond_timedwait(&plain, &m, &NS_TOO_MANY), EINVAL);
        }
        RETURNS(pthread_mutex_lock(&m), 0);
        times_out(&plain, &m, k, CLOCK_REALTIME, false);
        times_out(&plain, &m, k, CLOCK_MONOTONIC, true);
        times_out(&monotonic, &m, k, CLOCK_MONOTONIC, false);
        times_out(&monotonic, &m, k, CLOCK_REALTIME, true);
        times_out(&shared, &m, k, CLOCK_REALTIME, false);
        times_out(&shared, &m, k, CLOCK_MONOTONIC, true);
        RETURNS(pthread_cond_clockwait(&plain, &m, CLOCK_PROCESS_CPUTIME_ID, &PAST), EINVAL);
        RETURNS(pthread_cond_clockwait(&plain, &m, CLOCK_BOOTTIME, &PAST), EINVAL);
        RETURNS(pthread_cond_clockwait(&plain, &m, 99, &PAST), EINVAL);
        is_held(&m, k);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    about[0] = 0;
}

/* Broadcast wakes all who wait; then the condition is destroyed at once, and its bytes are not
 * touched by the late. */
struct crowd {
    pthread_mutex_t m;
    pthread_cond_t *cond;
    int waiting, woken;
    bool open;
};

static void *one_of_crowd(void *arg) {
    struct crowd *c = arg;
    RETURNS(pthread_mutex_lock(&c->m), 0);
    c->waiting++;
    while (!c->open)
        RETURNS(pthread_cond_wait(c->cond, &c->m), 0);
    c->woken++;
    RETURNS(pthread_mutex_unlock(&c->m), 0);
    return NULL;
}

static void broadcast_then_reuse(int pshared) {
    enum { CROWD = 8 };
    for (int round = 0; round < 50; round++) {
        struct crowd c = {.m = PTHREAD_MUTEX_INITIALIZER};
        c.cond = malloc(sizeof *c.cond);
        init_cond(c.cond, pshared, CLOCK_REALTIME);
        pthread_t threads[CROWD];
        for (int t = 0; t < CROWD; t++)
            threads[t] = start(one_of_crowd, &c);
        for (int waiting = 0; waiting < CROWD; sched_yield()) {
            RETURNS(pthread_mutex_lock(&c.m), 0);
            waiting = c.waiting; /* all in wait, since we hold the mutex */
            c.open = waiting == CROWD;
            if (c.open)
                RETURNS(pthread_cond_broadcast(c.cond), 0);
            RETURNS(pthread_mutex_unlock(&c.m), 0);
        }
        RETURNS(pthread_cond_destroy(c.cond), 0);
        memset(c.cond, 0xa5, sizeof *c.cond);
        for (int t = 0; t < CROWD; t++)
            finish(threads[t]);
        CHECK_EQ(c.woken, CROWD);
        CHECK(all_bytes(c.cond, sizeof *c.cond, 0xa5));
        init_cond(c.cond, pshared, CLOCK_MONOTONIC);
        RETURNS(pthread_cond_broadcast(c.cond), 0);
        RETURNS(pthread_cond_destroy(c.cond), 0);
        free(c.cond);
    }
}

/* Each signal lets at least one of those go who waited when it came. */
static void *takes_a_token(void *arg) {
    struct crowd *c = arg;
    RETURNS(pthread_mutex_lock(&c->m), 0);
    c->waiting++;
    while (c->woken == 0)
        RETURNS(pthread_cond_wait(c->cond, &c->m), 0);
    c->woken--;
    RETURNS(pthread_mutex_unlock(&c->m), 0);
    return NULL;
}

static void a_signal_for_each(void) {
    enum { CROWD = 8 };
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    for (int round = 0; round < 50; round++) {
        struct crowd c = {.m = PTHREAD_MUTEX_INITIALIZER, .cond = &cond};
        pthread_t threads[CROWD];
        for (int t = 0; t < CROWD; t++)
            threads[t] = start(takes_a_token, &c);
        for (int given = 0; given < CROWD; sched_yield()) {
            RETURNS(pthread_mutex_lock(&c.m), 0);
            bool give = given < c.waiting;
            given += give;
            c.woken += give;
            RETURNS(pthread_mutex_unlock(&c.m), 0);
            if (give)
                RETURNS(pthread_cond_signal(&cond), 0);
        }
        for (int t = 0; t < CROWD; t++)
            finish(threads[t]);
        CHECK_EQ(c.woken, 0);
    }
    RETURNS(pthread_cond_destroy(&cond), 0);
}

static void stays_within_its_bytes(void) {
    struct {
        unsigned char before[32];
        pthread_cond_t cond;
        unsigned char after[32];
    } at;
    memset(&at, 0xa5, sizeof at);
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    init_cond(&at.cond, PTHREAD_PROCESS_PRIVATE, CLOCK_MONOTONIC);
    RETURNS(pthread_mutex_lock(&m), 0);
    RETURNS(pthread_cond_timedwait(&at.cond, &m, &PAST), ETIMEDOUT);
    RETURNS(pthread_mutex_unlock(&m), 0);
    RETURNS(pthread_cond_signal(&at.cond), 0);
    RETURNS(pthread_cond_broadcast(&at.cond), 0);
    RETURNS(pthread_cond_destroy(&at.cond), 0);
    CHECK(all_bytes(at.before, sizeof at.before, 0xa5));
    CHECK(all_bytes(at.after, sizeof at.after, 0xa5));
}

int main(void) {
    ping_pong();
    bounded_queue();
    timeouts();
    broadcast_then_reuse(PTHREAD_PROCESS_PRIVATE);
    broadcast_then_reuse(PTHREAD_PROCESS_SHARED);
    a_signal_for_each();
    stays_within_its_bytes();
}
