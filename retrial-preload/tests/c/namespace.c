/* A library in a namespace of its own has a libc of its own. Its locks work there, and a mutex of the program's that it is
 * given excludes it as it does the program. The argument is the library. */
#include "check.h"
#include <dlfcn.h>

enum { ROUNDS = 10000 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static struct torn torn;
static int (*lock)(pthread_mutex_t *), (*trylock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);

static void *locks_there(void *arg) {
    for (int round = 0; round < ROUNDS; round++) {
        while (trylock(&m) != 0)
            sched_yield();
        torn_step(&torn);
        CHECK_EQ(unlock(&m), 0);
    }
    return arg;
}

static void *waits_there(void *arg) {
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQ(lock(&m), 0);
        torn_step(&torn);
        CHECK_EQ(unlock(&m), 0);
    }
    return arg;
}

static void *waits_here(void *of) {
    RETURNS(pthread_mutex_lock(of), 0);
    RETURNS(pthread_mutex_unlock(of), 0);
    return NULL;
}

/* A mutex that has been waited for here is one to wait for there, and the other way round. */
static void wait_on_both_sides(pthread_mutex_t *of) {
    RETURNS(pthread_mutex_lock(of), 0);
    pthread_t thread = start(waits_here, of);
    usleep(20000);
    RETURNS(pthread_mutex_unlock(of), 0);
    finish(thread);
    CHECK_EQ(lock(of), 0);
    thread = start(waits_here, of);
    usleep(20000);
    CHECK_EQ(unlock(of), 0);
    finish(thread);
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    lock = (int (*)(pthread_mutex_t *))dlsym(library, "deep_lock");
    trylock = (int (*)(pthread_mutex_t *))dlsym(library, "deep_trylock");
    unlock = (int (*)(pthread_mutex_t *))dlsym(library, "deep_unlock");
    CHECK(lock && trylock && unlock);
    static pthread_mutex_t of_library = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    for (int depth = 0; depth < 2; depth++)
        CHECK_EQ(trylock(&of_library), 0);
    for (int depth = 0; depth < 2; depth++)
        CHECK_EQ(unlock(&of_library), 0);

    RETURNS(pthread_mutex_lock(&m), 0);
    CHECK_EQ(trylock(&m), EBUSY);
    RETURNS(pthread_mutex_unlock(&m), 0);
    CHECK_EQ(trylock(&m), 0);
    RETURNS(pthread_mutex_trylock(&m), EBUSY);
    RETURNS(pthread_mutex_timedlock(&m, &PAST), ETIMEDOUT);
    RETURNS(pthread_mutex_destroy(&m), EBUSY);
    CHECK_EQ(unlock(&m), 0);

    pthread_t thread = start(locks_there, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        RETURNS(pthread_mutex_lock(&m), 0);
        torn_step(&torn);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    finish(thread);
    CHECK_EQ(torn.left, 2 * ROUNDS);

    static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
    static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    wait_on_both_sides(&normal);
    wait_on_both_sides(&recursive);
    wait_on_both_sides(&checked);

    thread = start(waits_there, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        RETURNS(pthread_mutex_lock(&m), 0);
        torn_step(&torn);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    /* Whoever was missed there is woken by a later get here. */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        RETURNS(pthread_mutex_lock(&m), 0);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
    CHECK_EQ(torn.left, 4 * ROUNDS);
    RETURNS(pthread_mutex_destroy(&m), 0);
}
