/* fork: the child goes on with what the forking thread held, makes anew what others held, and its
 * locks, conditions and threads work; with handlers, under load, from any thread, by raw call. */
#include "check.h"
#include <sys/syscall.h>

struct locks {
    pthread_mutex_t m[4];
    pthread_rwlock_t rw;
    pthread_spinlock_t spin;
    pthread_cond_t cond[4]; /* one for each mutex */
};

static void init(struct locks *l) {
    for (int i = 0; i < 4; i++) {
        init_kind(&l->m[i], kind_at(i));
        RETURNS(pthread_cond_init(&l->cond[i], NULL), 0);
    }
    about[0] = 0;
    RETURNS(pthread_rwlock_init(&l->rw, NULL), 0);
    RETURNS(pthread_spin_init(&l->spin, PTHREAD_PROCESS_PRIVATE), 0);
}

/* Everything once, by itself or in competition with others who do the same. */
static void use(struct locks *l) {
    for (int i = 0; i < 4; i++) {
        RETURNS(pthread_mutex_lock(&l->m[i]), 0);
        if (i == PTHREAD_MUTEX_RECURSIVE)
            RETURNS(pthread_mutex_lock(&l->m[i]), 0);
        if (i == PTHREAD_MUTEX_ERRORCHECK)
            RETURNS(pthread_mutex_lock(&l->m[i]), EDEADLK);
        if (i == PTHREAD_MUTEX_RECURSIVE)
            RETURNS(pthread_mutex_unlock(&l->m[i]), 0);
        int timeout = pthread_cond_timedwait(&l->cond[i], &l->m[i], &PAST);
        CHECK(timeout == ETIMEDOUT || timeout == 0);
        RETURNS(pthread_cond_broadcast(&l->cond[i]), 0);
        RETURNS(pthread_mutex_unlock(&l->m[i]), 0);
    }
    RETURNS(pthread_rwlock_rdlock(&l->rw), 0);
    RETURNS(pthread_rwlock_unlock(&l->rw), 0);
    RETURNS(pthread_rwlock_wrlock(&l->rw), 0);
    RETURNS(pthread_rwlock_unlock(&l->rw), 0);
    RETURNS(pthread_spin_lock(&l->spin), 0);
    RETURNS(pthread_spin_unlock(&l->spin), 0);
}

static void *use_in_thread(void *arg) {
    use(arg);
    return NULL;
}

/* A child's whole life: alone, and then with a thread beside it. */
static void live(struct locks *l) {
    use(l);
    pthread_t thread = start(use_in_thread, l);
    use(l);
    finish(thread);
    use(l);
}

/* The forking thread's own locks are held in the child too, and the child may release them. */
static void *waits_in_parent(void *arg) {
    pthread_mutex_t *m = arg;
    RETURNS(pthread_mutex_lock(m), 0);
    RETURNS(pthread_mutex_unlock(m), 0);
    return NULL;
}

static void *releases_in_child(void *arg) {
    pthread_mutex_t *m = arg;
    RETURNS(pthread_mutex_trylock(m), EBUSY);
    RETURNS(pthread_mutex_unlock(m), 0);
    finish(start(waits_in_parent, m));
    RETURNS(pthread_mutex_lock(m), 0);
    RETURNS(pthread_mutex_unlock(m), 0);
    RETURNS(pthread_mutex_destroy(m), 0);
    return NULL;
}

/* Kinds that know their owner know that it is not the child. */
static void *is_not_the_owner(void *arg) {
    pthread_mutex_t *m = arg;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    RETURNS(pthread_mutex_trylock(m), EBUSY);
    RETURNS(pthread_mutex_timedlock(m, &PAST), ETIMEDOUT);
    RETURNS(pthread_cond_timedwait(&cond, m, &PAST), EPERM);
    RETURNS(pthread_mutex_unlock(m), EPERM);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, m), EBUSY);
    CHECK_EQ(elsewhere(pthread_mutex_unlock, m), EPERM);
    return NULL;
}

static void owned_at_fork(void) {
    for (int type = PTHREAD_MUTEX_RECURSIVE; type <= PTHREAD_MUTEX_ERRORCHECK; type++) {
        pthread_mutex_t m;
        init_kind(&m, (struct kind){.type = type});
        RETURNS(pthread_mutex_lock(&m), 0);
        reap(spawn(is_not_the_owner, &m));
        RETURNS(pthread_mutex_lock(&m), type == PTHREAD_MUTEX_RECURSIVE ? 0 : EDEADLK);
        RETURNS(pthread_mutex_unlock(&m), 0);
        RETURNS(pthread_mutex_unlock(&m), type == PTHREAD_MUTEX_RECURSIVE ? 0 : EPERM);
        RETURNS(pthread_mutex_destroy(&m), 0);
    }
    about[0] = 0;
}

static void held_at_fork(void) {
    for (int round = 0; round < 10; round++)
        for (int type = PTHREAD_MUTEX_NORMAL; type <= PTHREAD_MUTEX_ADAPTIVE_NP; type += 3) {
            pthread_mutex_t m;
            init_kind(&m, (struct kind){.type = type});
            RETURNS(pthread_mutex_lock(&m), 0);
            pthread_t waiters[2] = {start(waits_in_parent, &m), start(waits_in_parent, &m)};
            for (int i = 0; i < round; i++)
                sched_yield();
            reap(spawn(releases_in_child, &m));
            CHECK_EQ(elsewhere(pthread_mutex_trylock, &m), EBUSY); /* here still */
            RETURNS(pthread_mutex_unlock(&m), 0);
            finish(waiters[0]);
            finish(waiters[1]);
        }
    about[0] = 0;
}

/* In shared memory there is only one of it: the child waits for its parent. */
static struct shared {
    pthread_mutex_t m;
    struct torn torn;
} *shared;

static void *waits_for_parent(void *arg) {
    RETURNS(pthread_mutex_trylock(&shared->m), EBUSY);
    CHECK_EQ(shared->torn.left, 0);
    *(atomic_int *)arg = 1;
    RETURNS(pthread_mutex_lock(&shared->m), 0);
    CHECK_EQ(shared->torn.left, 1);
    RETURNS(pthread_mutex_unlock(&shared->m), 0);
    return NULL;
}

static void held_in_shared_memory(void) {
    shared = shared_memory(sizeof *shared);
    atomic_int *waits = shared_memory(sizeof *waits);
    for (int i = 0; i < KINDS; i++) {
        if (!kind_at(i).pshared || kind_at(i).type == PTHREAD_MUTEX_RECURSIVE)
            continue;
        memset(shared, 0, sizeof *shared);
        *waits = 0;
        init_kind(&shared->m, kind_at(i));
        RETURNS(pthread_mutex_lock(&shared->m), 0);
        pid_t child = spawn(waits_for_parent, waits);
        AWAIT(*waits);
        torn_step(&shared->torn);
        RETURNS(pthread_mutex_unlock(&shared->m), 0);
        reap(child);
    }
    about[0] = 0;
}

/* Threads hammer on locks while others fork; what the child finds locked is nobody's, so it makes
 * them anew. */
static struct locks hammered;
static atomic_bool stop;

static void *hammer(void *arg) {
    while (!stop) {
        use(&hammered);
        sched_yield();
    }
    return arg;
}

static void *remakes_and_lives(void *arg) {
    init(&hammered);
    live(&hammered);
    return arg;
}

static void *forks(void *arg) {
    for (int round = 0; round < 50; round++)
        reap(spawn(remakes_and_lives, NULL));
    return arg;
}

static void fork_under_load(void) {
    pthread_t threads[3];
    init(&hammered);
    for (int i = 0; i < 3; i++)
        threads[i] = start(hammer, NULL);
    forks(NULL);
    finish(start(forks, NULL));
    stop = true;
    for (int i = 0; i < 3; i++)
        finish(threads[i]);
    live(&hammered);
}

/* A process made without the library's knowledge has its memory, and its thread pointer, all the
 * same. */
static void fork_by_raw_call(void) {
    static struct locks l;
    init(&l);
    RETURNS(pthread_mutex_lock(&l.m[0]), 0);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        RETURNS(pthread_mutex_unlock(&l.m[0]), 0);
        use(&l);
        _exit(0);
    }
    reap(pid);
    RETURNS(pthread_mutex_unlock(&l.m[0]), 0);
    live(&l);
}

/* Handlers take locks before the fork and release them on both sides; last registered, first to
 * prepare. They remain registered, so they come last. */
static pthread_mutex_t of_handler[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                        PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP};
static char order[16];

static void prepare(int i) {
    RETURNS(pthread_mutex_lock(&of_handler[i]), 0);
    order[strlen(order)] = (char)('a' + i);
}

static void release(int i) {
    RETURNS(pthread_mutex_trylock(&of_handler[i]), EBUSY);
    RETURNS(pthread_mutex_unlock(&of_handler[i]), 0);
    order[strlen(order)] = (char)('0' + i);
}

static void prepare_0(void) { prepare(0); }
static void prepare_1(void) { prepare(1); }
static void prepare_2(void) { prepare(2); }
static void release_0(void) { release(0); }
static void release_1(void) { release(1); }
static void release_2(void) { release(2); }

static void *holds_now_and_then(void *arg) {
    while (!stop) {
        for (int i = 2; i >= 0; i--)
            RETURNS(pthread_mutex_lock(&of_handler[i]), 0);
        for (int i = 0; i < 3; i++)
            RETURNS(pthread_mutex_unlock(&of_handler[i]), 0);
        sched_yield();
    }
    return arg;
}

static void *finds_them_free(void *arg) {
    CHECK_EQ(strcmp(order, "cba012"), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &of_handler[i]), 0);
    return arg;
}

static void handlers(void) {
    CHECK_EQ(pthread_atfork(prepare_0, release_0, release_0), 0);
    CHECK_EQ(pthread_atfork(prepare_1, release_1, release_1), 0);
    CHECK_EQ(pthread_atfork(prepare_2, release_2, release_2), 0);
    stop = false;
    pthread_t threads[2] = {start(holds_now_and_then, NULL), start(holds_now_and_then, NULL)};
    for (int round = 0; round < 50; round++) {
        memset(order, 0, sizeof order);
        pid_t child = spawn(finds_them_free, NULL);
        CHECK_EQ(strcmp(order, "cba012"), 0);
        reap(child);
    }
    stop = true;
    finish(threads[0]);
    finish(threads[1]);
}

int main(void) {
    held_at_fork();
    owned_at_fork();
    held_in_shared_memory();
    fork_under_load();
    fork_by_raw_call();
    handlers();
}
