/* In a child of fork all threads come by for the first time together, and wait on conditions that the
 * parent's threads have waited on: each finds its signal. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 300 };

static struct place {
    pthread_mutex_t m;
    pthread_cond_t cond;
    atomic_bool waits;
    bool done;
} places[THREADS];

static atomic_bool go;

static void *waits(void *arg) {
    struct place *p = arg;
    while (!go)
        ;
    RETURNS(pthread_mutex_lock(&p->m), 0);
    p->waits = true;
    while (!p->done)
        RETURNS(pthread_cond_wait(&p->cond, &p->m), 0);
    RETURNS(pthread_mutex_unlock(&p->m), 0);
    return NULL;
}

static void *signals_all(void *arg) {
    (void)arg;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(waits, &places[i]);
    go = true;
    for (int i = 0; i < THREADS; i++) {
        struct place *p = &places[i];
        AWAIT(p->waits);
        RETURNS(pthread_mutex_lock(&p->m), 0);
        p->done = true;
        RETURNS(pthread_cond_signal(&p->cond), 0);
        RETURNS(pthread_mutex_unlock(&p->m), 0);
        finish(threads[i]);
    }
    go = false;
    for (int i = 0; i < THREADS; i++)
        places[i].waits = places[i].done = false;
    return NULL;
}

int main(void) {
    for (int i = 0; i < THREADS; i++) {
        RETURNS(pthread_mutex_init(&places[i].m, NULL), 0);
        RETURNS(pthread_cond_init(&places[i].cond, NULL), 0);
    }
    signals_all(NULL);
    for (int round = 0; round < ROUNDS; round++)
        reap(spawn(signals_all, NULL));
}
