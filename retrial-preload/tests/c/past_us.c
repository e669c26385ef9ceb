/* A program that finds libc's calls by a handle of libc, past any other library, and mixes them with those that it is
 * linked to: one unlocks what the other has locked, and threads exclude each other whichever they call. */
#include "check.h"
#include <dlfcn.h>

typedef int call(pthread_mutex_t *);

static struct calls {
    call *lock, *trylock, *unlock, *destroy;
} linked = {pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock, pthread_mutex_destroy}, libcs;

static call *find(void *libc, const char *name) {
    call *found = (call *)dlsym(libc, name);
    CHECK(found != NULL);
    return found;
}

static void is_free(pthread_mutex_t *m) {
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), 0);
    /* That thread has ended with it. */
    init_kind(m, (struct kind){0});
}

static void one_unlocks_what_the_other_has_locked(struct kind k) {
    const struct calls *const both[] = {&linked, &libcs};
    for (int i = 0; i < 16; i++) {
        const struct calls *locks = both[i & 1], *unlocks = both[i >> 1 & 1], *tries = both[i >> 2 & 1], *destroys = both[i >> 3];
        /* A recursive mutex of the one kind that is unlocked by the other stays locked: docs/INTERPOSER.md. */
        if (k.type == PTHREAD_MUTEX_RECURSIVE && (locks != unlocks || destroys == &libcs))
            continue;
        pthread_mutex_t m;
        init_kind(&m, k);
        for (int round = 0; round < 3; round++) {
            CHECK_EQ(locks->lock(&m), 0);
            CHECK_EQ(elsewhere(tries->trylock, &m), EBUSY);
            CHECK_EQ(unlocks->unlock(&m), 0);
            CHECK_EQ(tries->trylock(&m), 0);
            CHECK_EQ(elsewhere(locks->trylock, &m), EBUSY);
            CHECK_EQ(tries->unlock(&m), 0);
        }
        if (destroys == &linked)
            CHECK_EQ(destroys->destroy(&m), 0);
        CHECK_EQ(pthread_mutex_init(&m, NULL), 0);
        CHECK_EQ(locks->lock(&m), 0);
        CHECK_EQ(unlocks->unlock(&m), 0);
        is_free(&m);
    }
}

enum { THREADS = 4, ROUNDS = 20000 };

static struct mixed {
    pthread_mutex_t mutex;
    struct torn torn;
} mixed;

static void *mixes(void *arg) {
    unsigned seed = (unsigned)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1103515245 + 12345;
        CHECK_EQ((seed & 1 << 20 ? &linked : &libcs)->lock(&mixed.mutex), 0);
        torn_step(&mixed.torn);
        CHECK_EQ((seed & 1 << 21 ? &linked : &libcs)->unlock(&mixed.mutex), 0);
    }
    return arg;
}

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(libc != NULL);
    libcs = (struct calls){find(libc, "pthread_mutex_lock"), find(libc, "pthread_mutex_trylock"),
                           find(libc, "pthread_mutex_unlock"), find(libc, "pthread_mutex_destroy")};
    for (int type = 0; type < 4; type++)
        one_unlocks_what_the_other_has_locked(kind_at(type));
    for (int type = 0; type < 4; type++) {
        if (type == PTHREAD_MUTEX_RECURSIVE)
            continue;
        init_kind(&mixed.mutex, kind_at(type));
        mixed.torn = (struct torn){0, 0};
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(mixes, (void *)(intptr_t)(i + 1));
        for (int i = 0; i < THREADS; i++)
            finish(threads[i]);
        CHECK_EQ(mixed.torn.left, THREADS * ROUNDS);
        RETURNS(pthread_mutex_destroy(&mixed.mutex), 0);
    }
}
