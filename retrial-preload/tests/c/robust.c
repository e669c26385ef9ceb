/* Robust mutexes: one whose owner dies is inherited, and if not repaired, never given out again. */
#include "check.h"

struct account {
    pthread_mutex_t m;
    atomic_int held;
    volatile long debit, credit; /* equal, unless a transfer was cut short */
};

/* The ways to find out about a dead owner. */

static int by_lock(pthread_mutex_t *m) { return pthread_mutex_lock(m); }
static int by_trylock(pthread_mutex_t *m) { return pthread_mutex_trylock(m); }

static int by_timedlock(pthread_mutex_t *m) {
    struct timespec deadline = in_ms(CLOCK_REALTIME, 60000);
    return pthread_mutex_timedlock(m, &deadline);
}

static int by_clocklock(pthread_mutex_t *m) {
    struct timespec deadline = in_ms(CLOCK_MONOTONIC, 60000);
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &deadline);
}

static int by_past_timedlock(pthread_mutex_t *m) { return pthread_mutex_timedlock(m, &PAST); }

static int (*const ways[])(pthread_mutex_t *) = {by_lock, by_trylock, by_timedlock, by_clocklock,
                                                 by_past_timedlock};
enum { WAYS = sizeof ways / sizeof *ways };

/* The ways to die. */

static void *half_a_transfer(void *arg) {
    struct account *a = arg;
    RETURNS(pthread_mutex_lock(&a->m), 0);
    a->debit++;
    a->held = 1;
    return NULL;
}

static void *half_a_transfer_and_hang(void *arg) {
    half_a_transfer(arg);
    for (;;)
        pause();
    return NULL;
}

static void *half_a_transfer_and_exit_thread(void *arg) {
    half_a_transfer(arg);
    pthread_exit(NULL);
}

static void thread_returns(struct account *a) { finish(start(half_a_transfer, a)); }
static void thread_exits(struct account *a) { finish(start(half_a_transfer_and_exit_thread, a)); }
static void process_exits(struct account *a) { reap(spawn(half_a_transfer, a)); }

static void process_is_killed(struct account *a) {
    pid_t pid = spawn(half_a_transfer_and_hang, a);
    AWAIT(a->held);
    CHECK_EQ(kill(pid, SIGKILL), 0);
    reap_killed(pid);
}

static void (*const deaths[])(struct account *) = {thread_returns, thread_exits, process_exits,
                                                   process_is_killed};
enum { OF_THREADS = 2, DEATHS = 4 };

static struct account *init(struct account *a, struct kind k) {
    memset(a, 0, sizeof *a);
    init_kind(&a->m, k);
    return a;
}

static void is_whole(struct account *a) {
    CHECK_EQ(a->debit, a->credit);
    for (int w = 0; w < WAYS; w++) {
        RETURNS(ways[w](&a->m), 0);
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &a->m), EBUSY);
        RETURNS(pthread_mutex_unlock(&a->m), 0);
    }
    RETURNS(pthread_mutex_consistent(&a->m), EINVAL);
}

static void inherit(struct account *a, struct kind k, int (*way)(pthread_mutex_t *)) {
    RETURNS(way(&a->m), EOWNERDEAD);
    CHECK_EQ(a->debit, a->credit + 1);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &a->m), EBUSY);
    CHECK_EQ(elsewhere(pthread_mutex_unlock, &a->m), EPERM);
    if (k.type == PTHREAD_MUTEX_ERRORCHECK)
        RETURNS(pthread_mutex_lock(&a->m), EDEADLK);
}

static void repaired(struct account *a, struct kind k) {
    a->credit = a->debit;
    RETURNS(pthread_mutex_consistent(&a->m), 0);
    RETURNS(pthread_mutex_consistent(&a->m), EINVAL);
    if (k.type == PTHREAD_MUTEX_RECURSIVE) {
        RETURNS(pthread_mutex_lock(&a->m), 0);
        RETURNS(pthread_mutex_unlock(&a->m), 0);
    }
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &a->m), EBUSY);
    RETURNS(pthread_mutex_unlock(&a->m), 0);
    is_whole(a);
}

static void is_lost(struct account *a) {
    for (int round = 0; round < 2; round++)
        for (int w = 0; w < WAYS; w++) {
            if (ways[w] == by_trylock)
                continue;
            RETURNS(ways[w](&a->m), ENOTRECOVERABLE);
            CHECK_EQ(elsewhere(ways[w], &a->m), ENOTRECOVERABLE);
        }
    RETURNS(pthread_mutex_unlock(&a->m), EPERM);
    RETURNS(pthread_mutex_consistent(&a->m), EINVAL);
    /* Last and once: glibc 2.36 reports it rightly, but leaves the word taken, and the next one
     * to come would find it busy. */
    RETURNS(pthread_mutex_trylock(&a->m), ENOTRECOVERABLE);
}

static void every_death(struct account *a, struct kind k) {
    for (int d = 0; d < (k.pshared ? DEATHS : OF_THREADS); d++)
        for (int w = 0; w < WAYS; w++) {
            deaths[d](init(a, k));
            inherit(a, k, ways[w]);
            repaired(a, k);

            deaths[d](init(a, k));
            inherit(a, k, ways[w]);
            RETURNS(pthread_mutex_unlock(&a->m), 0);
            is_lost(a);
            RETURNS(pthread_mutex_destroy(&a->m), 0);
            RETURNS(ways[w](&a->m), EINVAL);
            is_whole(init(a, k));
        }
}

/* The heir dies as well, unrepaired and then repaired: the next one inherits again. */
static void *dying_heir(void *arg) {
    struct account *a = arg;
    RETURNS(pthread_mutex_lock(&a->m), EOWNERDEAD);
    return NULL;
}

static void *dying_repairer(void *arg) {
    struct account *a = arg;
    dying_heir(a);
    RETURNS(pthread_mutex_consistent(&a->m), 0);
    return NULL;
}

static void heirs_die(struct account *a, struct kind k) {
    thread_returns(init(a, k));
    finish(start(dying_heir, a));
    finish(start(dying_repairer, a));
    inherit(a, k, by_trylock);
    repaired(a, k);
}

/* However deep a recursive mutex was held, the heir holds it once. */
static void *three_deep(void *arg) {
    struct account *a = arg;
    for (int depth = 0; depth < 3; depth++)
        RETURNS(pthread_mutex_lock(&a->m), 0);
    return NULL;
}

static void depth_is_not_inherited(struct account *a, struct kind k) {
    finish(start(three_deep, init(a, k)));
    RETURNS(pthread_mutex_lock(&a->m), EOWNERDEAD);
    RETURNS(pthread_mutex_consistent(&a->m), 0);
    RETURNS(pthread_mutex_unlock(&a->m), 0);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &a->m), 0); /* and dies with it */
    RETURNS(pthread_mutex_lock(&a->m), EOWNERDEAD);
    RETURNS(pthread_mutex_consistent(&a->m), 0);
    RETURNS(pthread_mutex_unlock(&a->m), 0);
}

/* One thread dies with many mutexes, some of which it had let go. */
enum { MANY = 100 };

static void *dies_with_many(void *arg) {
    struct account *a = arg;
    for (int i = 0; i < MANY; i++)
        RETURNS(pthread_mutex_lock(&a[i].m), 0);
    for (int i = 0; i < MANY; i += 3)
        RETURNS(pthread_mutex_unlock(&a[i].m), 0);
    return NULL;
}

static void many_at_once(struct account *a, struct kind k) {
    for (int i = 0; i < MANY; i++)
        init(&a[i], k);
    if (k.pshared)
        reap(spawn(dies_with_many, a));
    else
        finish(start(dies_with_many, a));
    for (int i = 0; i < MANY; i++) {
        RETURNS(pthread_mutex_trylock(&a[i].m), i % 3 == 0 ? 0 : EOWNERDEAD);
        if (i % 3)
            RETURNS(pthread_mutex_consistent(&a[i].m), 0);
        RETURNS(pthread_mutex_unlock(&a[i].m), 0);
    }
}

/* Threads that wait while the owner dies, or that come later: one inherits, and when it repairs
 * the others go on. When it does not, none should be left waiting; glibc 2.36 wakes but the first
 * of them (who then takes the word, waiters' bit 31 and all, for a negative number and so for
 * uncontended), hence there is only one. */
struct wake {
    struct account *a;
    bool repair;
    int waiters;
    atomic_int arrived, heirs, others;
};

static void *waits_for_the_dead(void *arg) {
    struct wake *w = arg;
    int (*way)(pthread_mutex_t *) = w->arrived++ % 2 ? by_timedlock : by_lock;
    int result = way(&w->a->m);
    if (result == EOWNERDEAD) {
        w->heirs++;
        if (w->repair)
            RETURNS(pthread_mutex_consistent(&w->a->m), 0);
    } else {
        CHECK_EQ(result, w->repair ? 0 : ENOTRECOVERABLE);
        w->others++;
    }
    RETURNS(pthread_mutex_unlock(&w->a->m), result == ENOTRECOVERABLE ? EPERM : 0);
    return NULL;
}

static void *dies_when_all_have_arrived(void *arg) {
    struct wake *w = arg;
    half_a_transfer(w->a);
    AWAIT(w->arrived == w->waiters);
    for (int i = 0; i < 20; i++)
        sched_yield();
    return NULL;
}

static void waiters_are_woken(struct account *a, struct kind k) {
    for (int repair = 0; repair < 2; repair++) {
        struct wake w = {.a = init(a, k), .repair = repair, .waiters = repair ? 4 : 2};
        pthread_t owner = start(dies_when_all_have_arrived, &w);
        AWAIT(a->held);
        run_threads(w.waiters, waits_for_the_dead, &w);
        finish(owner);
        CHECK_EQ(w.heirs, 1);
        CHECK_EQ(w.others, w.waiters - 1);
    }
}

/* The same of processes, whose owner is killed. One of those that wait is killed before: it is nobody's heir. */
static void processes_are_woken(struct account *a, struct kind k) {
    struct wake *w = shared_memory(sizeof *w);
    for (int repair = 0; repair < 2; repair++) {
        *w = (struct wake){.a = init(a, k), .repair = repair, .waiters = repair ? 4 : 2};
        pid_t owner = spawn(half_a_transfer_and_hang, a), pids[5];
        AWAIT(a->held);
        for (int i = 0; i <= w->waiters; i++)
            pids[i] = spawn(waits_for_the_dead, w);
        AWAIT(w->arrived == w->waiters + 1);
        CHECK_EQ(kill(pids[w->waiters], SIGKILL), 0);
        reap_killed(pids[w->waiters]);
        CHECK_EQ(kill(owner, SIGKILL), 0);
        reap_killed(owner);
        for (int i = 0; i < w->waiters; i++)
            reap(pids[i]);
        CHECK_EQ(w->heirs, 1);
        CHECK_EQ(w->others, w->waiters - 1);
        if (repair) {
            a->credit = a->debit;
            is_whole(a);
        }
    }
    CHECK_EQ(munmap(w, sizeof *w), 0);
}

/* A condition's wait gets its mutex back from a dead owner. */
struct bequest {
    struct account *a;
    pthread_cond_t cond;
    atomic_int waiting, signalled;
};

static void *waits_on_condition(void *arg) {
    struct bequest *b = arg;
    RETURNS(pthread_mutex_lock(&b->a->m), 0);
    b->waiting = 1;
    int result = 0;
    while (!b->signalled && result == 0)
        result = pthread_cond_wait(&b->cond, &b->a->m);
    CHECK_EQ(result, EOWNERDEAD);
    RETURNS(pthread_mutex_consistent(&b->a->m), 0);
    RETURNS(pthread_mutex_unlock(&b->a->m), 0);
    return NULL;
}

static void *signals_and_dies(void *arg) {
    struct bequest *b = arg;
    AWAIT(b->waiting);
    RETURNS(pthread_mutex_lock(&b->a->m), 0);
    b->signalled = 1;
    RETURNS(pthread_cond_signal(&b->cond), 0);
    return NULL;
}

static void condition_inherits(struct account *a, struct kind k) {
    struct bequest b = {.a = init(a, k), .cond = PTHREAD_COND_INITIALIZER};
    pthread_t waiter = start(waits_on_condition, &b);
    finish(start(signals_and_dies, &b));
    finish(waiter);
    is_whole(a);
}

/* Destroyed by one process while another holds it, as at the close of some databases: the memory
 * stays, its mutex is gone for both. */
static void *holds_what_is_destroyed(void *arg) {
    struct account *a = arg;
    half_a_transfer(a);
    AWAIT(!a->held);
    RETURNS(pthread_mutex_unlock(&a->m), EINVAL);
    return NULL;
}

static void destroyed_while_held(struct account *a, struct kind k) {
    pid_t holder = spawn(holds_what_is_destroyed, init(a, k));
    AWAIT(a->held);
    RETURNS(pthread_mutex_destroy(&a->m), 0);
    a->held = 0;
    reap(holder);
    for (int w = 0; w < WAYS; w++)
        RETURNS(ways[w](&a->m), EINVAL);
    is_whole(init(a, k));
}

/* In a file: each process maps it where it likes, and the state outlives every mapping. */
static struct account *map(FILE *file) {
    struct account *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    CHECK(a != MAP_FAILED);
    return a;
}

static void *dies_with_its_own_mapping(void *arg) {
    half_a_transfer(map(arg));
    raise(SIGKILL);
    return NULL;
}

static void in_a_file(struct kind k) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    CHECK_EQ(ftruncate(fileno(file), sizeof(struct account)), 0);
    struct account *a = map(file);
    for (int repair = 1; repair >= 0; repair--) {
        init(a, k);
        CHECK_EQ(munmap(a, sizeof *a), 0);
        reap_killed(spawn(dies_with_its_own_mapping, file));
        a = map(file);
        inherit(a, k, by_lock);
        if (repair) {
            repaired(a, k);
            continue;
        }
        RETURNS(pthread_mutex_unlock(&a->m), 0);
        CHECK_EQ(munmap(a, sizeof *a), 0);
        a = map(file);
        is_lost(a);
    }
    CHECK_EQ(munmap(a, sizeof *a), 0);
    fclose(file);
}

int main(void) {
    struct account *a = shared_memory(MANY * sizeof *a);
    for (int i = KINDS / 2; i < KINDS; i++) {
        struct kind k = kind_at(i);
        is_whole(init(a, k));
        every_death(a, k);
        heirs_die(a, k);
        if (k.type == PTHREAD_MUTEX_RECURSIVE)
            depth_is_not_inherited(a, k);
        many_at_once(a, k);
        for (int round = 0; round < 10; round++) {
            waiters_are_woken(a, k);
            condition_inherits(a, k);
            if (k.pshared)
                processes_are_woken(a, k);
        }
        if (k.pshared) {
            destroyed_while_held(a, k);
            in_a_file(k);
        }
    }
}
