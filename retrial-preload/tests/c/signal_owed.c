/* A signal is owed to a thread that waited when it came: not to one that came later, whatever its priority, and it does not
 * become a time-out.
 *
 * The rounds are so many that they cannot end in time when a wait is ended by anything slower than the signal. */
#include "check.h"

enum { ROUNDS = 1000, TIMED_ROUNDS = 3, DEADLINE_MS = 20, LATE_MS = 10 };

struct scene {
    pthread_mutex_t m;
    pthread_cond_t cond;
    struct timespec deadline;
    bool waits, first_may_go, second_may_go;
    atomic_bool first_gone;
    int result;
};

static void set(struct scene *s) {
    *s = (struct scene){.m = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
}

/* Returns with the mutex, when a thread waits on the condition. */
static void lock_when_it_waits(struct scene *s) {
    for (;; sched_yield()) {
        RETURNS(pthread_mutex_lock(&s->m), 0);
        if (s->waits)
            return;
        RETURNS(pthread_mutex_unlock(&s->m), 0);
    }
}

static void *waits_until_deadline(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->waits = true;
    s->deadline = in_ms(CLOCK_REALTIME, DEADLINE_MS);
    s->result = pthread_cond_timedwait(&s->cond, &s->m, &s->deadline);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    return NULL;
}

/* The signaller keeps the mutex until the deadline has passed. */
static void in_time(int (*wake)(pthread_cond_t *)) {
    for (int done = 0; done < TIMED_ROUNDS;) {
        struct scene s;
        set(&s);
        pthread_t waiter = start(waits_until_deadline, &s);
        lock_when_it_waits(&s);
        bool is_in_time = !reached(CLOCK_REALTIME, s.deadline);
        RETURNS(wake(&s.cond), 0);
        is_in_time &= !reached(CLOCK_REALTIME, s.deadline);
        struct timespec late = in_ms(CLOCK_REALTIME, DEADLINE_MS + LATE_MS);
        while (!reached(CLOCK_REALTIME, late))
            sched_yield();
        RETURNS(pthread_mutex_unlock(&s.m), 0);
        finish(waiter);
        if (is_in_time) {
            CHECK_EQ(s.result, 0);
            done++;
        }
        RETURNS(pthread_cond_destroy(&s.cond), 0);
    }
}

static void *goes_first(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->waits = true;
    while (!s->first_may_go)
        RETURNS(pthread_cond_wait(&s->cond, &s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    s->first_gone = true;
    return NULL;
}

static void *goes_second(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    while (!s->second_may_go)
        RETURNS(pthread_cond_wait(&s->cond, &s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    return NULL;
}

/* On one processor: the second thread, which has a higher priority, waits for the mutex, and runs from the moment on in
 * which it is free. Where nobody may have such a priority nothing is shown. */
static void not_by_a_later_one(void) {
    cpu_set_t all, one;
    CHECK_EQ(pthread_getaffinity_np(pthread_self(), sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    pthread_attr_t attr;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED), 0);
    CHECK_EQ(pthread_attr_setschedpolicy(&attr, SCHED_FIFO), 0);
    CHECK_EQ(pthread_attr_setschedparam(&attr, &(struct sched_param){.sched_priority = 10}), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        set(&s);
        pthread_t first = start(goes_first, &s), second;
        lock_when_it_waits(&s);
        s.first_may_go = true;
        int error = pthread_create(&second, &attr, goes_second, &s);
        if (error == EPERM) {
            RETURNS(pthread_cond_signal(&s.cond), 0);
            RETURNS(pthread_mutex_unlock(&s.m), 0);
            finish(first);
            break;
        }
        CHECK_EQ(error, 0);
        RETURNS(pthread_cond_signal(&s.cond), 0);
        RETURNS(pthread_mutex_unlock(&s.m), 0);
        AWAIT(s.first_gone);
        RETURNS(pthread_mutex_lock(&s.m), 0);
        s.second_may_go = true;
        RETURNS(pthread_cond_signal(&s.cond), 0);
        RETURNS(pthread_mutex_unlock(&s.m), 0);
        finish(first);
        finish(second);
        RETURNS(pthread_cond_destroy(&s.cond), 0);
    }
    CHECK_EQ(pthread_attr_destroy(&attr), 0);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof all, &all), 0);
}

int main(void) {
    in_time(pthread_cond_signal);
    in_time(pthread_cond_broadcast);
    not_by_a_later_one();
}
