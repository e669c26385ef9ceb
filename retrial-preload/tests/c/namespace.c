/* A library in a namespace of its own has a libc of its own. Its locks work there, and a mutex of the program's that it is
 * given excludes it as it does the program. The argument is the library. */
#include "check.h"
#include <dlfcn.h>

enum { ROUNDS = 20000 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static struct torn torn;
static int (*trylock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);

static void *locks_there(void *arg) {
    for (int round = 0; round < ROUNDS; round++) {
        while (trylock(&m) != 0)
            sched_yield();
        torn_step(&torn);
        CHECK_EQ(unlock(&m), 0);
    }
    return arg;
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    trylock = (int (*)(pthread_mutex_t *))dlsym(library, "deep_trylock");
    unlock = (int (*)(pthread_mutex_t *))dlsym(library, "deep_unlock");
    CHECK(trylock && unlock);
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
    RETURNS(pthread_mutex_destroy(&m), 0);
}
