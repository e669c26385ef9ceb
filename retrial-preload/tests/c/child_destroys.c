/* A child of fork destroys a condition as its first call, as destructors of static objects do. Those that wait on it wait in
 * the parent. (Libc waits for them for ever.) */
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool waits, may_go;

static void *waits_once(void *arg) {
    RETURNS(pthread_mutex_lock(&m), 0);
    waits = true;
    while (!may_go)
        RETURNS(pthread_cond_wait(&cond, &m), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    return arg;
}

static void *destroys(void *arg) {
    RETURNS(pthread_cond_destroy(&cond), 0);
    return arg;
}

int main(void) {
    pthread_t waiter = start(waits_once, NULL);
    for (bool ready = false; !ready; sched_yield()) {
        RETURNS(pthread_mutex_lock(&m), 0);
        ready = waits;
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    reap(spawn(destroys, NULL));
    RETURNS(pthread_mutex_lock(&m), 0);
    may_go = true;
    RETURNS(pthread_cond_signal(&cond), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    finish(waiter);
}
