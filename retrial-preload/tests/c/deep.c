/* A library that is loaded with RTLD_DEEPBIND, found by the program's own search path, shares a mutex
 * and a condition with the program. The argument is its name. */
#include "check.h"
#include <dlfcn.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

struct shared {
    pthread_mutex_t *m;
    pthread_cond_t *cond;
    int *turn;
};

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    CHECK(dlopen("no such library", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    CHECK(dlerror() != NULL);
    int (*trylock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(library, "deep_trylock");
    int (*unlock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(library, "deep_unlock");
    void *(*takes_turns)(void *) = (void *(*)(void *))dlsym(library, "deep_takes_turns");
    CHECK(trylock && unlock && takes_turns);

    RETURNS(pthread_mutex_lock(&m), 0);
    RETURNS(trylock(&m), EBUSY);
    RETURNS(pthread_mutex_unlock(&m), 0);
    RETURNS(trylock(&m), 0);
    RETURNS(pthread_mutex_trylock(&m), EBUSY);
    RETURNS(unlock(&m), 0);

    pthread_t thread = start(takes_turns, &(struct shared){&m, &cond, &turn});
    RETURNS(pthread_mutex_lock(&m), 0);
    for (int i = 0; i < 100; i++) {
        turn = 1;
        RETURNS(pthread_cond_signal(&cond), 0);
        while (turn == 1)
            RETURNS(pthread_cond_wait(&cond, &m), 0);
    }
    turn = -1;
    RETURNS(pthread_cond_signal(&cond), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    finish(thread);
}
