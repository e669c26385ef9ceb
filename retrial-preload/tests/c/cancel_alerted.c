/* A get that waits for so long that the library looks what the holder is at is still no cancellation point: a thread that
 * is cancelled meanwhile has the mutex in its clean-up handler, and a plain lock ends with the mutex. */
#include "check.h"

/* The library looks in between: after 200 ms, by the test's parameter. */
enum { BEFORE_MS = 50, AFTER_MS = 500 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static atomic_bool waits, main_has;
static atomic_int cleaned;
static bool is_signalled;

static void hold_for(long ms) {
    struct timespec end = in_ms(CLOCK_MONOTONIC, ms);
    while (!reached(CLOCK_MONOTONIC, end))
        sched_yield();
}

/* The caller has the mutex, for which the thread waits. */
static void cancel_and_hold(pthread_t thread) {
    main_has = true;
    hold_for(BEFORE_MS);
    CHECK_EQ(pthread_cancel(thread), 0);
    hold_for(AFTER_MS);
    main_has = false;
    RETURNS(pthread_mutex_unlock(&m), 0);
}

static void unlocks(void *arg) {
    (void)arg;
    CHECK(!main_has);
    cleaned++;
    RETURNS(pthread_mutex_unlock(&m), 0);
}

static void *comes_back(void *arg) {
    RETURNS(pthread_mutex_lock(&m), 0);
    pthread_cleanup_push(unlocks, NULL);
    waits = true;
    while (!is_signalled)
        RETURNS(pthread_cond_wait(&cond, &m), 0);
    CHECK(!main_has);
    pthread_cleanup_pop(1);
    return arg;
}

static void *broadcasts(void *arg) {
    RETURNS(pthread_cond_broadcast(&cond), 0);
    return arg;
}

static void *locks(void *arg) {
    waits = true;
    RETURNS(pthread_mutex_lock(&m), 0);
    CHECK(!main_has);
    RETURNS(pthread_mutex_unlock(&m), 0);
    cleaned++;
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    return arg;
}

int main(void) {
    pthread_t waiter = start(comes_back, NULL);
    AWAIT(waits);
    RETURNS(pthread_mutex_lock(&m), 0); /* it waits on the condition */
    is_signalled = true;
    finish(start(broadcasts, NULL)); /* by a thread that has not got the mutex: it is woken at once */
    cancel_and_hold(waiter);
    finish(waiter);
    CHECK_EQ(cleaned, 1);

    waits = false;
    RETURNS(pthread_mutex_lock(&m), 0);
    pthread_t locker = start(locks, NULL);
    AWAIT(waits);
    cancel_and_hold(locker);
    CHECK(finish(locker) != PTHREAD_CANCELED);
    CHECK_EQ(cleaned, 2);
    RETURNS(pthread_mutex_trylock(&m), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
}
