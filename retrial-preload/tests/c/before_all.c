/* Locks taken before anybody's constructors stay what they are after them, also when the library that
 * was preloaded finds then that it cannot do all that it was asked for. */
#include "check.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool waits, asked, done;

static void *works(void *arg) {
    RETURNS(pthread_mutex_lock(&m), 0);
    waits = true;
    while (!asked)
        RETURNS(pthread_cond_wait(&cond, &m), 0);
    done = true;
    RETURNS(pthread_cond_signal(&cond), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    return arg;
}

static void before_all(void) {
    RETURNS(pthread_mutex_lock(&held), 0);
    thread = start(works, NULL);
    for (bool ready = false; !ready; sched_yield()) {
        RETURNS(pthread_mutex_lock(&m), 0);
        ready = waits;
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = before_all;

int main(void) {
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &held), EBUSY);
    RETURNS(pthread_mutex_lock(&m), 0);
    asked = true;
    RETURNS(pthread_cond_signal(&cond), 0);
    while (!done)
        RETURNS(pthread_cond_wait(&cond, &m), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    finish(thread);
    RETURNS(pthread_mutex_unlock(&held), 0);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &held), 0);
}
