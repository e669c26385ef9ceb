/* One thread gets a mutex again as soon as it has given it back and sleeps while it holds it; others wait.
 * They have their turns after a few gets of the first, where libc lets it have hundreds. Now and then one may miss its turn: the one that
 * the mutex is handed to may find no processor in time. */
#include "check.h"

enum { WAITERS = 3, GETS = 20, TURNS_MAX = 64, MISSED_MAX = WAITERS * GETS / 4 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_long greedy_gets;
static atomic_int waiting = WAITERS, missed;

static void *wait_for_turns(void *arg) {
    (void)arg;
    for (int i = 0; i < GETS; i++) {
        long before = greedy_gets;
        RETURNS(pthread_mutex_lock(&mutex), 0);
        long turns = greedy_gets - before;
        RETURNS(pthread_mutex_unlock(&mutex), 0);
        missed += turns > TURNS_MAX;
    }
    waiting--;
    return NULL;
}

int main(void) {
    const struct timespec section = {.tv_nsec = 1000000};
    pthread_t threads[WAITERS];
    RETURNS(pthread_mutex_lock(&mutex), 0);
    for (int i = 0; i < WAITERS; i++)
        RETURNS(pthread_create(&threads[i], NULL, wait_for_turns, NULL), 0);
    while (waiting != 0) {
        nanosleep(&section, NULL);
        greedy_gets++;
        RETURNS(pthread_mutex_unlock(&mutex), 0);
        RETURNS(pthread_mutex_lock(&mutex), 0);
    }
    RETURNS(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < WAITERS; i++)
        RETURNS(pthread_join(threads[i], NULL), 0);
    CHECK(missed <= MISSED_MAX);
    return 0;
}
