/* Whoever gets a lock may make an end of it, and of the memory that it is in, at once: the one who released it touches
 * it no more. */
#include "check.h"
#include <threads.h>

enum { ROUNDS = 200 };

static size_t page_size;
static atomic_int turn; /* the round, in steps of two: odd when the object is held */
static void *page;

/* A page for each round: none is used again, so that a late touch finds none. */
static char *pages(void) {
    void *at = mmap(NULL, ROUNDS * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

struct family {
    void (*make)(void *);
    int (*lock)(void *), (*trylock)(void *), (*unlock)(void *);
};

static struct kind kind;
static void make_mutex(void *at) { init_kind(at, kind); }
static int mutex_lock(void *at) { return pthread_mutex_lock(at); }
static int mutex_trylock(void *at) { return pthread_mutex_trylock(at); }
static int mutex_unlock(void *at) { return pthread_mutex_unlock(at); }

static void make_mtx(void *at) { CHECK_EQ(mtx_init(at, mtx_plain), thrd_success); }
static int lock_mtx(void *at) { return mtx_lock(at); }
static int trylock_mtx(void *at) { return mtx_trylock(at) == thrd_success ? 0 : EBUSY; }
static int unlock_mtx(void *at) { return mtx_unlock(at); }

static void make_spin(void *at) { RETURNS(pthread_spin_init(at, PTHREAD_PROCESS_PRIVATE), 0); }
static int spin_lock(void *at) { return pthread_spin_lock(at); }
static int spin_trylock(void *at) { return pthread_spin_trylock(at); }
static int spin_unlock(void *at) { return pthread_spin_unlock(at); }

static const struct family *family;

static void *releases(void *arg) {
    for (int round = 0; round < ROUNDS; round++) {
        AWAIT(turn == 2 * round);
        void *at = page;
        RETURNS(family->lock(at), 0);
        turn = 2 * round + 1;
        RETURNS(family->unlock(at), 0);
    }
    return arg;
}

static void ends(void) {
    turn = -1;
    char *all = pages();
    pthread_t thread = start(releases, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        void *at = all + (size_t)round * page_size;
        family->make(at);
        page = at;
        turn = 2 * round;
        AWAIT(turn == 2 * round + 1);
        if (round % 4 == 0)
            RETURNS(family->lock(at), 0);
        else
            while (family->trylock(at) != 0)
                ;
        CHECK_EQ(mprotect(at, page_size, PROT_NONE), 0);
    }
    finish(thread);
    CHECK_EQ(munmap(all, ROUNDS * page_size), 0);
}

/* A condition is destroyed when all have been told, while they come back from it. */
struct told {
    pthread_mutex_t m;
    pthread_cond_t *cond;
    bool waits, done;
};

static void *is_told(void *arg) {
    struct told *t = arg;
    RETURNS(pthread_mutex_lock(&t->m), 0);
    t->waits = true;
    while (!t->done)
        RETURNS(pthread_cond_wait(t->cond, &t->m), 0);
    RETURNS(pthread_mutex_unlock(&t->m), 0);
    return NULL;
}

static void condition(void) {
    char *all = pages();
    for (int round = 0; round < ROUNDS; round++) {
        struct told t = {.m = PTHREAD_MUTEX_INITIALIZER, .cond = (void *)(all + (size_t)round * page_size)};
        RETURNS(pthread_cond_init(t.cond, NULL), 0);
        pthread_t thread = start(is_told, &t);
        while (!t.done) {
            RETURNS(pthread_mutex_lock(&t.m), 0);
            if (t.waits) {
                t.done = true;
                RETURNS(pthread_cond_signal(t.cond), 0);
            }
            RETURNS(pthread_mutex_unlock(&t.m), 0);
        }
        RETURNS(pthread_cond_destroy(t.cond), 0);
        CHECK_EQ(mprotect(t.cond, page_size, PROT_NONE), 0);
        finish(thread);
    }
    CHECK_EQ(munmap(all, ROUNDS * page_size), 0);
}

int main(void) {
    static const struct family mutex = {make_mutex, mutex_lock, mutex_trylock, mutex_unlock};
    static const struct family others[] = {
        {make_mtx, lock_mtx, trylock_mtx, unlock_mtx},
        {make_spin, spin_lock, spin_trylock, spin_unlock},
    };
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    family = &mutex;
    for (int i = 0; i < KINDS / 2; i++) {
        kind = kind_at(i);
        if (knows_owner(kind) && kind.pshared)
            continue;
        ends();
    }
    about[0] = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        family = &others[i];
        ends();
    }
    condition();
}
