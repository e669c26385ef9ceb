/* More threads than any small table holds: short-lived ones that each take locks, joined or
 * detached, on the smallest stacks, and many that hold and wait at once. */
#include "check.h"

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t robust;
static pthread_mutex_t *const mutexes[] = {&normal, &recursive, &errorcheck, &adaptive, &robust};
enum { MUTEXES = sizeof mutexes / sizeof *mutexes };

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct torn torn[MUTEXES + 1];
static long lived; /* under `normal` */

static pthread_t start_with(int detach, void *(*body)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_t thread;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN), 0);
    CHECK_EQ(pthread_attr_setdetachstate(&attr, detach), 0);
    CHECK_EQ(pthread_create(&thread, &attr, body, arg), 0);
    CHECK_EQ(pthread_attr_destroy(&attr), 0);
    return thread;
}

static void *lives(void *arg) {
    for (int i = 0; i < MUTEXES; i++) {
        RETURNS(pthread_mutex_lock(mutexes[i]), 0);
        torn_step(&torn[i]);
    }
    RETURNS(pthread_rwlock_wrlock(&rw), 0);
    torn_step(&torn[MUTEXES]);
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    for (int i = MUTEXES - 1; i > 0; i--)
        RETURNS(pthread_mutex_unlock(mutexes[i]), 0);
    lived++;
    RETURNS(pthread_cond_signal(&changed), 0);
    RETURNS(pthread_mutex_unlock(&normal), 0);
    return arg;
}

static void joined(int count) {
    enum { WAVE = 50 };
    pthread_t wave[WAVE];
    for (int left = count; left > 0; left -= WAVE) {
        for (int i = 0; i < WAVE; i++)
            wave[i] = start_with(PTHREAD_CREATE_JOINABLE, lives, &wave[i]);
        for (int i = 0; i < WAVE; i++)
            CHECK(finish(wave[i]) == &wave[i]);
    }
}

static void detached(int count, long in_all) {
    for (int i = 0; i < count; i++) {
        start_with(PTHREAD_CREATE_DETACHED, lives, NULL);
        RETURNS(pthread_mutex_lock(&normal), 0);
        while (lived < in_all - count + i - 50) /* not too many at once */
            RETURNS(pthread_cond_wait(&changed, &normal), 0);
        RETURNS(pthread_mutex_unlock(&normal), 0);
    }
    RETURNS(pthread_mutex_lock(&normal), 0);
    while (lived < in_all)
        RETURNS(pthread_cond_wait(&changed, &normal), 0);
    RETURNS(pthread_mutex_unlock(&normal), 0);
}

/* All alive at once, each with a mutex of its own, all waiting on one condition. */
enum { AT_ONCE = 300 };
static pthread_mutex_t own[AT_ONCE];
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static int waiting; /* these under `adaptive` */
static bool open;

static void *holds_and_waits(void *arg) {
    pthread_mutex_t *mine = arg;
    RETURNS(pthread_mutex_lock(mine), 0);
    RETURNS(pthread_mutex_lock(&adaptive), 0);
    waiting++;
    RETURNS(pthread_cond_signal(&changed), 0);
    while (!open)
        RETURNS(pthread_cond_wait(&gate, &adaptive), 0);
    waiting--;
    RETURNS(pthread_mutex_unlock(&adaptive), 0);
    RETURNS(pthread_mutex_unlock(mine), 0);
    return NULL;
}

static void at_once(void) {
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        init_kind(&own[i], kind_at(i % KINDS));
        threads[i] = start_with(PTHREAD_CREATE_JOINABLE, holds_and_waits, &own[i]);
    }
    about[0] = 0;
    RETURNS(pthread_mutex_lock(&adaptive), 0);
    while (waiting < AT_ONCE)
        RETURNS(pthread_cond_wait(&changed, &adaptive), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        RETURNS(pthread_mutex_trylock(&own[i]), EBUSY);
        if (knows_owner(kind_at(i % KINDS)))
            RETURNS(pthread_mutex_unlock(&own[i]), EPERM);
    }
    open = true;
    RETURNS(pthread_cond_broadcast(&gate), 0);
    RETURNS(pthread_mutex_unlock(&adaptive), 0);
    for (int i = 0; i < AT_ONCE; i++)
        finish(threads[i]);
    CHECK_EQ(waiting, 0);
    for (int i = 0; i < AT_ONCE; i++)
        RETURNS(pthread_mutex_trylock(&own[i]), 0);
}

int main(void) {
    enum { JOINED = 1000, DETACHED = 700 };
    init_kind(&robust, (struct kind){.robust = PTHREAD_MUTEX_ROBUST});
    about[0] = 0;
    joined(JOINED);
    detached(DETACHED, JOINED + DETACHED);
    for (int i = 0; i <= MUTEXES; i++)
        CHECK_EQ(torn[i].left, JOINED + DETACHED);
    at_once();
}
