/* What a thread leaves locked at its end is nobody's: threads that come later, in whatever place of
 * the dead one's, are told that it is busy, or not theirs. */
#include "check.h"

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t *const all[] = {&recursive, &errorcheck};
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *leaves_locked(void *arg) {
    (void)arg;
    for (int i = 0; i < 2; i++)
        RETURNS(pthread_mutex_lock(all[i]), 0);
    return NULL;
}

static void *finds_locked(void *arg) {
    (void)arg;
    for (int i = 0; i < 2; i++) {
        RETURNS(pthread_mutex_trylock(all[i]), EBUSY);
        RETURNS(pthread_mutex_timedlock(all[i], &PAST), ETIMEDOUT);
        RETURNS(pthread_mutex_unlock(all[i]), EPERM);
        RETURNS(pthread_cond_timedwait(&cond, all[i], &PAST), EPERM);
    }
    return NULL;
}

/* Who ends without a lock leaves them as they were: they work for all of the next ones. */
static void *locks_and_unlocks(void *arg) {
    pthread_mutex_t *m = arg;
    RETURNS(pthread_mutex_lock(m), 0);
    RETURNS(pthread_mutex_lock(m), m == all[0] ? 0 : EDEADLK);
    if (m == all[0])
        RETURNS(pthread_mutex_unlock(m), 0);
    RETURNS(pthread_cond_timedwait(&cond, m, &PAST), ETIMEDOUT);
    RETURNS(pthread_mutex_unlock(m), 0);
    RETURNS(pthread_mutex_unlock(m), EPERM);
    RETURNS(pthread_mutex_trylock(m), 0);
    RETURNS(pthread_mutex_unlock(m), 0);
    return NULL;
}

int main(void) {
    for (int i = 0; i < 2; i++)
        for (int round = 0; round < 8; round++)
            run_threads(1, locks_and_unlocks, all[i]);
    run_threads(1, leaves_locked, NULL);
    for (int round = 0; round < 8; round++)
        run_threads(1 + round % 3, finds_locked, NULL);
}
