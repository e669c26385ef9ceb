/* Read-write locks: who gets in with whom, which kind lets readers pass a waiting writer, when a
 * deadline is looked at, own write locks noticed, and the same among processes. */
#include "check.h"

static const int rw_kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                               PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};

static void init(pthread_rwlock_t *rw, int kind, int pshared) {
    snprintf(about, sizeof about, "[kind %d%s] ", kind, pshared ? " shared" : "");
    pthread_rwlockattr_t attr;
    CHECK_EQ(pthread_rwlockattr_init(&attr), 0);
    CHECK_EQ(pthread_rwlockattr_setkind_np(&attr, kind), 0);
    CHECK_EQ(pthread_rwlockattr_setpshared(&attr, pshared), 0);
    RETURNS(pthread_rwlock_init(rw, &attr), 0);
    CHECK_EQ(pthread_rwlockattr_destroy(&attr), 0);
}

/* What `op` returns in another thread; what it got it lets go. */
struct asked {
    pthread_rwlock_t *rw;
    int (*op)(pthread_rwlock_t *);
    int result;
};

static void *ask(void *arg) {
    struct asked *a = arg;
    a->result = a->op(a->rw);
    if (a->result == 0)
        RETURNS(pthread_rwlock_unlock(a->rw), 0);
    return NULL;
}

static int other(int (*op)(pthread_rwlock_t *), pthread_rwlock_t *rw) {
    struct asked a = {.rw = rw, .op = op};
    finish(start(ask, &a));
    return a.result;
}

static int past_rd(pthread_rwlock_t *rw) { return pthread_rwlock_timedrdlock(rw, &PAST); }
static int past_wr(pthread_rwlock_t *rw) { return pthread_rwlock_timedwrlock(rw, &PAST); }

static void behaves(pthread_rwlock_t *rw) {
    RETURNS(pthread_rwlock_rdlock(rw), 0);
    RETURNS(pthread_rwlock_rdlock(rw), 0);
    RETURNS(pthread_rwlock_tryrdlock(rw), 0);
    RETURNS(pthread_rwlock_trywrlock(rw), EBUSY);
    CHECK_EQ(other(pthread_rwlock_rdlock, rw), 0);
    CHECK_EQ(other(pthread_rwlock_tryrdlock, rw), 0);
    CHECK_EQ(other(past_rd, rw), 0);
    for (int depth = 3; depth > 0; depth--) {
        CHECK_EQ(other(pthread_rwlock_trywrlock, rw), EBUSY);
        CHECK_EQ(other(past_wr, rw), ETIMEDOUT);
        RETURNS(pthread_rwlock_unlock(rw), 0);
    }
    CHECK_EQ(other(pthread_rwlock_trywrlock, rw), 0);
    for (int by_try = 0; by_try < 2; by_try++) {
        RETURNS(by_try ? pthread_rwlock_trywrlock(rw) : pthread_rwlock_wrlock(rw), 0);
        RETURNS(pthread_rwlock_tryrdlock(rw), EBUSY);
        RETURNS(pthread_rwlock_trywrlock(rw), EBUSY);
        RETURNS(pthread_rwlock_rdlock(rw), EDEADLK);
        RETURNS(pthread_rwlock_wrlock(rw), EDEADLK);
        RETURNS(pthread_rwlock_timedrdlock(rw, &PAST), EDEADLK);
        RETURNS(pthread_rwlock_timedwrlock(rw, &PAST), EDEADLK);
        CHECK_EQ(other(pthread_rwlock_tryrdlock, rw), EBUSY);
        CHECK_EQ(other(pthread_rwlock_trywrlock, rw), EBUSY);
        CHECK_EQ(other(past_rd, rw), ETIMEDOUT);
        CHECK_EQ(other(past_wr, rw), ETIMEDOUT);
        RETURNS(pthread_rwlock_unlock(rw), 0);
        CHECK_EQ(other(pthread_rwlock_tryrdlock, rw), 0);
    }
}

/* Deadlines. Unlike a mutex's, they are checked first, even when the lock is free. */
struct way {
    bool write, clocked;
    clockid_t clock;
};

static const struct way ways[] = {
    {false, false, CLOCK_REALTIME}, {true, false, CLOCK_REALTIME}, {false, true, CLOCK_REALTIME},
    {true, true, CLOCK_REALTIME},   {false, true, CLOCK_MONOTONIC}, {true, true, CLOCK_MONOTONIC},
};
enum { WAYS = sizeof ways / sizeof *ways };

static int lock_by(const struct way *w, pthread_rwlock_t *rw, struct timespec deadline) {
    if (!w->clocked)
        return w->write ? pthread_rwlock_timedwrlock(rw, &deadline)
                        : pthread_rwlock_timedrdlock(rw, &deadline);
    return w->write ? pthread_rwlock_clockwrlock(rw, w->clock, &deadline)
                    : pthread_rwlock_clockrdlock(rw, w->clock, &deadline);
}

static void refuses_bad_deadlines(pthread_rwlock_t *rw) {
    for (int w = 0; w < WAYS; w++) {
        RETURNS(lock_by(&ways[w], rw, NS_TOO_FEW), EINVAL);
        RETURNS(lock_by(&ways[w], rw, NS_TOO_MANY), EINVAL);
    }
    const clockid_t bad[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_BOOTTIME, 99};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RETURNS(pthread_rwlock_clockrdlock(rw, bad[i], &PAST), EINVAL);
        RETURNS(pthread_rwlock_clockwrlock(rw, bad[i], &PAST), EINVAL);
    }
}

static void *times_out(void *arg) {
    pthread_rwlock_t *rw = arg;
    for (int w = 0; w < WAYS; w++) {
        RETURNS(lock_by(&ways[w], rw, PAST), ETIMEDOUT);
        RETURNS(lock_by(&ways[w], rw, BEFORE_1970), ETIMEDOUT);
        struct timespec deadline = in_ms(ways[w].clock, 2);
        RETURNS(lock_by(&ways[w], rw, deadline), ETIMEDOUT);
        CHECK(reached(ways[w].clock, deadline));
    }
    return NULL;
}

static void deadlines(pthread_rwlock_t *rw) {
    for (int w = 0; w < WAYS; w++) {
        RETURNS(lock_by(&ways[w], rw, PAST), 0);
        RETURNS(pthread_rwlock_unlock(rw), 0);
        RETURNS(lock_by(&ways[w], rw, BEFORE_1970), 0);
        RETURNS(pthread_rwlock_unlock(rw), 0);
    }
    refuses_bad_deadlines(rw);
    RETURNS(pthread_rwlock_rdlock(rw), 0);
    refuses_bad_deadlines(rw);
    for (int w = 0; w < WAYS; w++) {
        if (ways[w].write) {
            struct timespec deadline = in_ms(ways[w].clock, 2);
            RETURNS(lock_by(&ways[w], rw, deadline), ETIMEDOUT);
            CHECK(reached(ways[w].clock, deadline));
        } else {
            RETURNS(lock_by(&ways[w], rw, PAST), 0);
            RETURNS(pthread_rwlock_unlock(rw), 0);
        }
    }
    RETURNS(pthread_rwlock_unlock(rw), 0);
    RETURNS(pthread_rwlock_wrlock(rw), 0);
    refuses_bad_deadlines(rw); /* before the own lock is noticed */
    finish(start(times_out, rw));
    RETURNS(pthread_rwlock_unlock(rw), 0);
}

/* Readers are all in at once, or this hangs. */
enum { READERS = 8 };

struct meeting {
    pthread_rwlock_t rw;
    atomic_int present;
};

static void *meets(void *arg) {
    struct meeting *meeting = arg;
    RETURNS(pthread_rwlock_rdlock(&meeting->rw), 0);
    meeting->present++;
    AWAIT(meeting->present >= READERS);
    RETURNS(pthread_rwlock_unlock(&meeting->rw), 0);
    return NULL;
}

static void readers_meet(int kind) {
    struct meeting meeting = {.present = 0};
    init(&meeting.rw, kind, PTHREAD_PROCESS_PRIVATE);
    run_threads(READERS, meets, &meeting);
}

/* Writers are alone, readers see no half of what they write. */
struct book {
    pthread_rwlock_t rw;
    struct torn torn;
    atomic_int users;
    int rounds;
};

static void lock_somehow(pthread_rwlock_t *rw, bool write, int i) {
    struct timespec deadline;
    int result;
    switch (i % 4) {
    case 0:
        RETURNS(write ? pthread_rwlock_wrlock(rw) : pthread_rwlock_rdlock(rw), 0);
        break;
    case 1:
        while ((result = write ? pthread_rwlock_trywrlock(rw) : pthread_rwlock_tryrdlock(rw))) {
            CHECK_EQ(result, EBUSY);
            sched_yield();
        }
        break;
    case 2:
        deadline = in_ms(CLOCK_MONOTONIC, 60000);
        RETURNS(lock_by(&ways[write ? 5 : 4], rw, deadline), 0);
        break;
    case 3:
        do {
            deadline = in_ms(CLOCK_REALTIME, 0);
            result = lock_by(&ways[write ? 1 : 0], rw, deadline);
            CHECK(result == 0 || result == ETIMEDOUT);
        } while (result);
    }
}

static void *reads_and_writes(void *arg) {
    struct book *b = arg;
    bool writer = b->users++ % 2;
    for (int i = 0; i < b->rounds; i++) {
        lock_somehow(&b->rw, writer, i);
        if (writer)
            torn_step(&b->torn);
        else
            CHECK_EQ(b->torn.left, b->torn.right);
        if (i % 64 == 0)
            sched_yield();
        RETURNS(pthread_rwlock_unlock(&b->rw), 0);
    }
    return NULL;
}

static void exclusion(struct book *b, int kind, int pshared) {
    *b = (struct book){.rounds = 1000};
    init(&b->rw, kind, pshared);
    run_threads(8, reads_and_writes, b);
    CHECK_EQ(b->torn.left, 4 * b->rounds);
    if (pshared) {
        run_children(4, reads_and_writes, b);
        CHECK_EQ(b->torn.left, 6 * b->rounds);
    }
    RETURNS(pthread_rwlock_destroy(&b->rw), 0);
}

/* A reader reads again while a writer waits. */
struct writer {
    pthread_rwlock_t rw;
    atomic_bool comes, done;
};

static void *writes_once(void *arg) {
    struct writer *w = arg;
    w->comes = true;
    RETURNS(pthread_rwlock_wrlock(&w->rw), 0);
    w->done = true;
    RETURNS(pthread_rwlock_unlock(&w->rw), 0);
    return NULL;
}

static void readers_pass_the_writer(int kind, int pshared) {
    struct writer w = {.done = false};
    init(&w.rw, kind, pshared);
    RETURNS(pthread_rwlock_rdlock(&w.rw), 0);
    pthread_t thread = start(writes_once, &w);
    AWAIT(w.comes);
    for (int i = 0; i < 200; i++) { /* it waits from some point on */
        RETURNS(pthread_rwlock_rdlock(&w.rw), 0);
        RETURNS(pthread_rwlock_tryrdlock(&w.rw), 0);
        RETURNS(pthread_rwlock_timedrdlock(&w.rw, &PAST), 0);
        sched_yield();
        for (int depth = 0; depth < 3; depth++)
            RETURNS(pthread_rwlock_unlock(&w.rw), 0);
    }
    CHECK_EQ(other(pthread_rwlock_rdlock, &w.rw), 0);
    CHECK(!w.done);
    RETURNS(pthread_rwlock_unlock(&w.rw), 0);
    finish(thread);
}

/* Of the kind that prefers writers, readers have to wait behind one. */
static void *reads_after_the_writer(void *arg) {
    struct writer *w = arg;
    w->comes = true;
    RETURNS(pthread_rwlock_rdlock(&w->rw), 0);
    CHECK(w->done);
    RETURNS(pthread_rwlock_unlock(&w->rw), 0);
    return NULL;
}

static void the_writer_goes_first(int pshared) {
    struct writer w = {.done = false};
    init(&w.rw, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, pshared);
    RETURNS(pthread_rwlock_rdlock(&w.rw), 0);
    pthread_t writer = start(writes_once, &w);
    for (int result; (result = pthread_rwlock_tryrdlock(&w.rw)) != EBUSY; sched_yield()) {
        CHECK_EQ(result, 0);
        RETURNS(pthread_rwlock_unlock(&w.rw), 0);
    }
    RETURNS(pthread_rwlock_timedrdlock(&w.rw, &PAST), ETIMEDOUT);
    CHECK_EQ(other(past_rd, &w.rw), ETIMEDOUT);
    CHECK_EQ(other(pthread_rwlock_tryrdlock, &w.rw), EBUSY);
    w.comes = false;
    pthread_t reader = start(reads_after_the_writer, &w);
    AWAIT(w.comes);
    for (int i = 0; i < 10; i++)
        sched_yield();
    CHECK(!w.done);
    RETURNS(pthread_rwlock_unlock(&w.rw), 0);
    finish(writer);
    finish(reader);
}

/* A writer that gives up lets the readers go that waited behind it. */
static void *tries_to_write(void *arg) {
    struct writer *w = arg;
    struct timespec deadline = in_ms(CLOCK_MONOTONIC, 5);
    RETURNS(pthread_rwlock_clockwrlock(&w->rw, CLOCK_MONOTONIC, &deadline), ETIMEDOUT);
    CHECK(reached(CLOCK_MONOTONIC, deadline));
    return NULL;
}

static void *reads(void *arg) {
    struct writer *w = arg;
    RETURNS(pthread_rwlock_rdlock(&w->rw), 0);
    RETURNS(pthread_rwlock_unlock(&w->rw), 0);
    return NULL;
}

static void a_writer_gives_up(int kind, int pshared) {
    struct writer w = {.done = false};
    init(&w.rw, kind, pshared);
    RETURNS(pthread_rwlock_rdlock(&w.rw), 0);
    pthread_t writer = start(tries_to_write, &w);
    run_threads(4, reads, &w);
    finish(writer);
    RETURNS(pthread_rwlock_unlock(&w.rw), 0);
    RETURNS(pthread_rwlock_trywrlock(&w.rw), 0);
    RETURNS(pthread_rwlock_unlock(&w.rw), 0);
}

static pthread_rwlock_t as_default = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t as_writer = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_rwlock_t as_nothing;

int main(void) {
    behaves(&as_default);
    behaves(&as_writer);
    behaves(&as_nothing);
    RETURNS(pthread_rwlock_wrlock(&as_nothing), 0);
    memset(&as_nothing, 0, sizeof as_nothing);
    behaves(&as_nothing);

    struct {
        unsigned char before[32];
        pthread_rwlock_t rw;
        unsigned char after[32];
    } at;
    memset(&at, 0xa5, sizeof at);
    struct book *book = shared_memory(sizeof *book);
    for (int i = 0; i < 6; i++) {
        int kind = rw_kinds[i % 3];
        int pshared = i / 3 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
        for (int round = 0; round < 2; round++) {
            init(&at.rw, kind, pshared);
            behaves(&at.rw);
            deadlines(&at.rw);
            RETURNS(pthread_rwlock_destroy(&at.rw), 0);
        }
        readers_meet(kind);
        exclusion(book, kind, pshared);
        a_writer_gives_up(kind, pshared);
        if (kind == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
            the_writer_goes_first(pshared);
        else
            readers_pass_the_writer(kind, pshared);
    }
    CHECK(all_bytes(at.before, sizeof at.before, 0xa5));
    CHECK(all_bytes(at.after, sizeof at.after, 0xa5));
}
