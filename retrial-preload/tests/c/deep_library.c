/* The library of deep.c. */
#include <pthread.h>

struct shared {
    pthread_mutex_t *m;
    pthread_cond_t *cond;
    int *turn;
};

int deep_lock(pthread_mutex_t *m) { return pthread_mutex_lock(m); }
int deep_trylock(pthread_mutex_t *m) { return pthread_mutex_trylock(m); }
int deep_unlock(pthread_mutex_t *m) { return pthread_mutex_unlock(m); }

void *deep_takes_turns(void *arg) {
    struct shared *s = arg;
    pthread_mutex_lock(s->m);
    while (*s->turn >= 0) {
        if (*s->turn == 1) {
            *s->turn = 0;
            pthread_cond_signal(s->cond);
        } else {
            pthread_cond_wait(s->cond, s->m);
        }
    }
    pthread_mutex_unlock(s->m);
    return NULL;
}
