/* Threads with the smallest stack that there may be use every call, and wait in it. */
#include "everything.h"

enum { THREADS = 4, ROUNDS = 20 };

static struct everything all;

static void *uses(void *arg) {
    for (int round = 0; round < ROUNDS; round++)
        use_everything(&all);
    return arg;
}

int main(void) {
    init_everything(&all);
    pthread_attr_t attr;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN)), 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], &attr, uses, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        finish(threads[i]);
}
