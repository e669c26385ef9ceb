/* timedlock and clocklock: when a deadline is looked at, what it may be, and that it is kept. */
#include "check.h"

struct way {
    const char *name;
    clockid_t clock;
    bool timedlock;
};

static const struct way ways[] = {
    {"timedlock", CLOCK_REALTIME, true},
    {"clocklock realtime", CLOCK_REALTIME, false},
    {"clocklock monotonic", CLOCK_MONOTONIC, false},
};

static pthread_mutex_t m;
static const struct way *way;

static int lock_by(struct timespec deadline) {
    return way->timedlock ? pthread_mutex_timedlock(&m, &deadline)
                          : pthread_mutex_clocklock(&m, way->clock, &deadline);
}

/* A free mutex is taken without a look at the deadline, be it past or no time at all. */
static void free_mutex(void) {
    const struct timespec any[] = {PAST, BEFORE_1970, NS_TOO_FEW, NS_TOO_MANY, {-1, -1}};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        RETURNS(lock_by(any[i]), 0);
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &m), EBUSY);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    RETURNS(lock_by(in_ms(way->clock, 60000)), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
}

/* The deadline of a busy one is checked first, then waited for. */
static void busy_mutex(void) {
    RETURNS(lock_by(PAST), ETIMEDOUT);
    RETURNS(lock_by(BEFORE_1970), ETIMEDOUT);
    RETURNS(lock_by(NS_TOO_FEW), EINVAL);
    RETURNS(lock_by(NS_TOO_MANY), EINVAL);
    struct timespec deadline = in_ms(way->clock, 3);
    RETURNS(lock_by(deadline), ETIMEDOUT);
    CHECK(reached(way->clock, deadline));
}

static void *busy_body(void *arg) {
    busy_mutex();
    return arg;
}

/* One's own: a relock is an error or counts before any look at the deadline, or it waits it out. */
static void own_mutex(struct kind k) {
    if (k.type == PTHREAD_MUTEX_RECURSIVE) {
        RETURNS(lock_by(PAST), 0);
        RETURNS(lock_by(NS_TOO_MANY), 0);
        RETURNS(pthread_mutex_unlock(&m), 0);
        RETURNS(pthread_mutex_unlock(&m), 0);
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &m), EBUSY);
    } else if (k.type == PTHREAD_MUTEX_ERRORCHECK) {
        RETURNS(lock_by(PAST), EDEADLK);
        RETURNS(lock_by(NS_TOO_MANY), EDEADLK);
        RETURNS(lock_by(in_ms(way->clock, 60000)), EDEADLK);
    } else {
        busy_mutex();
    }
}

/* Released before the deadline; the waiter may come before or after that. */
static atomic_int waiting;

static void *waits(void *arg) {
    waiting = 1;
    RETURNS(lock_by(in_ms(way->clock, 60000)), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    return arg;
}

static void released_in_time(void) {
    for (int round = 0; round < 10; round++) {
        waiting = 0;
        RETURNS(pthread_mutex_lock(&m), 0);
        pthread_t waiter = start(waits, NULL);
        AWAIT(waiting);
        for (int i = 0; i < 10 * round; i++)
            sched_yield();
        RETURNS(pthread_mutex_unlock(&m), 0);
        finish(waiter);
    }
}

/* A clock that cannot be waited on is refused before the mutex is looked at. */
static void bad_clocks(void) {
    const clockid_t bad[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME, 99,
                             -1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        RETURNS(pthread_mutex_clocklock(&m, bad[i], &PAST), EINVAL);
}

int main(void) {
    for (int i = 0; i < KINDS; i++) {
        init_kind(&m, kind_at(i));
        size_t of_kind = strlen(about);
        bad_clocks();
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            way = &ways[w];
            snprintf(about + of_kind, sizeof about - of_kind, "[%s] ", way->name);
            free_mutex();
            RETURNS(pthread_mutex_lock(&m), 0);
            bad_clocks();
            finish(start(busy_body, NULL));
            own_mutex(kind_at(i));
            RETURNS(pthread_mutex_unlock(&m), 0);
            released_in_time();
            RETURNS(pthread_mutex_trylock(&m), 0);
            RETURNS(pthread_mutex_unlock(&m), 0);
        }
        RETURNS(pthread_mutex_destroy(&m), 0);
    }
}
