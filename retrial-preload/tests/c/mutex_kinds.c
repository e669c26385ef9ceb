/* Every kind of mutex: initialisers, attributes, lock, trylock, unlock, destroy, and its memory. */
#include "check.h"

static int trylock_and_unlock(pthread_mutex_t *m) {
    int result = pthread_mutex_trylock(m);
    return result ? result : pthread_mutex_unlock(m);
}

/* All that can be asked of a free mutex of kind `k` without blocking; it is free again after. */
static void behaves(pthread_mutex_t *m, struct kind k) {
    RETURNS(pthread_mutex_lock(m), 0);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    if (k.type == PTHREAD_MUTEX_RECURSIVE) {
        RETURNS(pthread_mutex_lock(m), 0);
        RETURNS(pthread_mutex_trylock(m), 0);
        RETURNS(pthread_mutex_lock(m), 0);
        for (int depth = 4; depth > 1; depth--) {
            RETURNS(pthread_mutex_unlock(m), 0);
            CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
        }
    } else if (k.type == PTHREAD_MUTEX_ERRORCHECK) {
        RETURNS(pthread_mutex_lock(m), EDEADLK);
        RETURNS(pthread_mutex_trylock(m), k.robust ? EDEADLK : EBUSY);
    } else {
        RETURNS(pthread_mutex_trylock(m), EBUSY);
    }
    if (knows_owner(k))
        CHECK_EQ(elsewhere(pthread_mutex_unlock, m), EPERM);
    if (!k.robust)
        RETURNS(pthread_mutex_destroy(m), EBUSY);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    RETURNS(pthread_mutex_unlock(m), 0);
    CHECK_EQ(elsewhere(trylock_and_unlock, m), 0);

    RETURNS(pthread_mutex_trylock(m), 0);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    if (knows_owner(k)) {
        RETURNS(pthread_mutex_unlock(m), 0);
        RETURNS(pthread_mutex_unlock(m), EPERM);
    } else {
        CHECK_EQ(elsewhere(pthread_mutex_unlock, m), 0);
    }
    CHECK_EQ(elsewhere(trylock_and_unlock, m), 0);
}

static void is_gone(pthread_mutex_t *m) {
    RETURNS(pthread_mutex_lock(m), EINVAL);
    RETURNS(pthread_mutex_trylock(m), EINVAL);
    RETURNS(pthread_mutex_timedlock(m, &PAST), EINVAL);
    RETURNS(pthread_mutex_unlock(m), EINVAL);
}

static pthread_mutex_t as_normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t as_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t as_errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t as_adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t as_nothing;

static void static_initialisers(void) {
    behaves(&as_normal, (struct kind){.type = PTHREAD_MUTEX_NORMAL});
    behaves(&as_recursive, (struct kind){.type = PTHREAD_MUTEX_RECURSIVE});
    behaves(&as_errorcheck, (struct kind){.type = PTHREAD_MUTEX_ERRORCHECK});
    behaves(&as_adaptive, (struct kind){.type = PTHREAD_MUTEX_ADAPTIVE_NP});
    behaves(&as_nothing, (struct kind){.type = PTHREAD_MUTEX_NORMAL});

    /* One place of the stack, a new mutex each time, left locked each time. */
    for (int round = 0; round < 100; round++) {
        pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
        RETURNS(pthread_mutex_trylock(&m), 0);
        RETURNS(pthread_mutex_trylock(&m), EBUSY);
    }
}

static void every_attribute(void) {
    struct {
        unsigned char before[32];
        pthread_mutex_t m;
        unsigned char after[32];
    } at;
    memset(&at, 0xa5, sizeof at);
    for (int i = 0; i < KINDS; i++)
        for (int round = 0; round < 2; round++) {
            init_kind(&at.m, kind_at(i));
            behaves(&at.m, kind_at(i));
            RETURNS(pthread_mutex_destroy(&at.m), 0);
            is_gone(&at.m);
        }
    about[0] = 0;
    CHECK(all_bytes(at.before, sizeof at.before, 0xa5));
    CHECK(all_bytes(at.after, sizeof at.after, 0xa5));

    RETURNS(pthread_mutex_init(&at.m, NULL), 0);
    behaves(&at.m, (struct kind){.type = PTHREAD_MUTEX_DEFAULT});
    RETURNS(pthread_mutex_consistent(&at.m), EINVAL);
    RETURNS(pthread_mutex_destroy(&at.m), 0);
}

static void many_at_once(void) {
    enum { COUNT = 5000 };
    pthread_mutex_t *m = calloc(COUNT, sizeof *m);
    CHECK(m != NULL);
    for (int i = 0; i < COUNT; i++)
        RETURNS(pthread_mutex_lock(&m[i]), 0);
    for (int i = 0; i < COUNT; i++)
        RETURNS(pthread_mutex_trylock(&m[i]), EBUSY);
    for (int i = 0; i < COUNT; i++)
        RETURNS(pthread_mutex_unlock(&m[i]), 0);
    behaves(&m[COUNT / 2], (struct kind){.type = PTHREAD_MUTEX_NORMAL});
    free(m);
}

/* The state of a mutex is its bytes: to zero them, or to map others there, is to have a new one. */
static void state_is_in_the_bytes(void) {
    const struct kind normal = {.type = PTHREAD_MUTEX_NORMAL};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, rw = PROT_READ | PROT_WRITE;
    pthread_mutex_t *m = mmap(NULL, page, rw, anonymous, -1, 0);
    CHECK(m != MAP_FAILED);

    RETURNS(pthread_mutex_lock(m), 0);
    memset(m, 0, sizeof *m);
    behaves(m, normal);
    for (int i = 0; i < KINDS / 2; i++) { /* robust ones are in their owner's list */
        init_kind(m, kind_at(i));
        RETURNS(pthread_mutex_lock(m), 0);
        memset(m, 0, sizeof *m);
        behaves(m, normal);
    }
    RETURNS(pthread_mutex_lock(m), 0);
    CHECK(mmap(m, page, rw, anonymous | MAP_FIXED, -1, 0) == m);
    behaves(m, normal);

    RETURNS(pthread_mutex_lock(m), 0);
    void *elsewhere_mapped = mmap(NULL, page, rw, anonymous, -1, 0);
    pthread_mutex_t *moved =
        mremap(m, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere_mapped);
    CHECK(moved == elsewhere_mapped && moved != m);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, moved), EBUSY);
    RETURNS(pthread_mutex_unlock(moved), 0);
    behaves(moved, normal);
    CHECK_EQ(munmap(moved, page), 0);
    about[0] = 0;
}

static void mapped_twice(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    FILE *file = tmpfile();
    CHECK(file != NULL);
    CHECK_EQ(ftruncate(fileno(file), (off_t)page), 0);
    pthread_mutex_t *here = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    pthread_mutex_t *there = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    CHECK(here != MAP_FAILED && there != MAP_FAILED && here != there);
    for (int i = 4; i < 8; i++) { /* shared, not robust */
        init_kind(here, kind_at(i));
        behaves(there, kind_at(i));
        RETURNS(pthread_mutex_lock(here), 0);
        CHECK_EQ(elsewhere(pthread_mutex_trylock, there), EBUSY);
        RETURNS(pthread_mutex_unlock(there), 0);
        CHECK_EQ(elsewhere(trylock_and_unlock, here), 0);
        RETURNS(pthread_mutex_destroy(here), 0);
        is_gone(there);
    }
    about[0] = 0;
    CHECK_EQ(munmap(here, page), 0);
    CHECK_EQ(munmap(there, page), 0);
    fclose(file);
}

int main(void) {
    static_initialisers();
    every_attribute();
    many_at_once();
    state_is_in_the_bytes();
    mapped_twice();
}
