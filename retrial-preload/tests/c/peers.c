/* Processes that share memory, one of them with nothing preloaded: what is process-shared excludes, wakes and is
 * inherited between them as between any; a private mutex, which POSIX does not let them share, excludes as well. */
#include "check.h"

enum { ROUNDS = 1000, DEATHS = 5 };

struct table {
    pthread_mutex_t mutexes[KINDS];
    struct torn torn[KINDS];
    pthread_rwlock_t rw[2];
    struct torn of_rw[2];
    pthread_spinlock_t spin;
    struct torn of_spin;
    pthread_mutex_t baton;
    pthread_cond_t passed;
    int turn;
    atomic_int held;
};

static struct table *t;

/* Only tries: libc's wait for a private one is not woken from another process. */
static void lock(int i) {
    if (kind_at(i).pshared) {
        RETURNS(pthread_mutex_lock(&t->mutexes[i]), 0);
        return;
    }
    for (int result; (result = pthread_mutex_trylock(&t->mutexes[i])) != 0; sched_yield())
        CHECK_EQ(result, EBUSY);
}

static bool is_shareable(int i) { return kind_at(i).pshared || !kind_at(i).robust; }

static void compete(int side) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KINDS; i++) {
            if (!is_shareable(i))
                continue;
            lock(i);
            torn_step(&t->torn[i]);
            if (round % 64 == 0)
                sched_yield();
            RETURNS(pthread_mutex_unlock(&t->mutexes[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            RETURNS(pthread_rwlock_wrlock(&t->rw[i]), 0);
            torn_step(&t->of_rw[i]);
            RETURNS(pthread_rwlock_unlock(&t->rw[i]), 0);
            RETURNS(pthread_rwlock_rdlock(&t->rw[i]), 0);
            CHECK_EQ(t->of_rw[i].left, t->of_rw[i].right);
            RETURNS(pthread_rwlock_unlock(&t->rw[i]), 0);
        }
        RETURNS(pthread_spin_lock(&t->spin), 0);
        torn_step(&t->of_spin);
        RETURNS(pthread_spin_unlock(&t->spin), 0);
    }
    RETURNS(pthread_mutex_lock(&t->baton), 0);
    for (int round = 0; round < ROUNDS / 10; round++) {
        while (t->turn % 2 != side)
            RETURNS(pthread_cond_wait(&t->passed, &t->baton), 0);
        t->turn++;
        RETURNS(pthread_cond_signal(&t->passed), 0);
    }
    RETURNS(pthread_mutex_unlock(&t->baton), 0);
}

static void is_all_there(void) {
    for (int i = 0; i < KINDS; i++)
        if (is_shareable(i))
            CHECK_EQ(t->torn[i].left, 2 * ROUNDS);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(t->of_rw[i].left, 2 * ROUNDS);
    CHECK_EQ(t->of_spin.left, 2 * ROUNDS);
    CHECK_EQ(t->turn, 2 * ROUNDS / 10);
}

static void set(void) {
    memset(t, 0, sizeof *t);
    for (int i = 0; i < KINDS; i++)
        init_kind(&t->mutexes[i], kind_at(i));
    about[0] = 0;
    for (int i = 0; i < 2; i++) {
        pthread_rwlockattr_t attr;
        CHECK_EQ(pthread_rwlockattr_init(&attr), 0);
        CHECK_EQ(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
        CHECK_EQ(pthread_rwlockattr_setkind_np(&attr, i ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP
                                                        : PTHREAD_RWLOCK_PREFER_READER_NP), 0);
        CHECK_EQ(pthread_rwlock_init(&t->rw[i], &attr), 0);
    }
    CHECK_EQ(pthread_spin_init(&t->spin, PTHREAD_PROCESS_SHARED), 0);
    init_kind(&t->baton, (struct kind){.pshared = PTHREAD_PROCESS_SHARED});
    about[0] = 0;
    pthread_condattr_t attr;
    CHECK_EQ(pthread_condattr_init(&attr), 0);
    CHECK_EQ(pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
    CHECK_EQ(pthread_cond_init(&t->passed, &attr), 0);
}

/* A peer: this program, by itself. */
static pid_t peer(const char *role, int i) {
    static char program[] = "/proc/self/exe", number[8];
    snprintf(number, sizeof number, "%d", i);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_EQ(unsetenv("LD_PRELOAD"), 0);
        execl(program, program, role, number, NULL);
        CHECK_EQ(errno, 0);
    }
    return pid;
}

static void inherits(int i) {
    while (t->held == 0)
        sched_yield();
    RETURNS(pthread_mutex_lock(&t->mutexes[i]), EOWNERDEAD);
    RETURNS(pthread_mutex_consistent(&t->mutexes[i]), 0);
    RETURNS(pthread_mutex_unlock(&t->mutexes[i]), 0);
}

static void dies(int i) {
    RETURNS(pthread_mutex_lock(&t->mutexes[i]), 0);
    t->held = 1;
    raise(SIGKILL);
}

/* What one side holds the other one finds busy. */
static void finds_all_busy(void) {
    for (int i = 0; i < KINDS; i++)
        if (is_shareable(i))
            RETURNS(pthread_mutex_trylock(&t->mutexes[i]), EBUSY);
    for (int i = 0; i < 2; i++)
        RETURNS(pthread_rwlock_tryrdlock(&t->rw[i]), EBUSY);
    RETURNS(pthread_spin_trylock(&t->spin), EBUSY);
}

static void takes_all(void) {
    for (int i = 0; i < KINDS; i++)
        if (is_shareable(i))
            lock(i);
    for (int i = 0; i < 2; i++)
        RETURNS(pthread_rwlock_wrlock(&t->rw[i]), 0);
    RETURNS(pthread_spin_lock(&t->spin), 0);
}

static void gives_all_back(void) {
    for (int i = 0; i < KINDS; i++)
        if (is_shareable(i))
            RETURNS(pthread_mutex_unlock(&t->mutexes[i]), 0);
    for (int i = 0; i < 2; i++)
        RETURNS(pthread_rwlock_unlock(&t->rw[i]), 0);
    RETURNS(pthread_spin_unlock(&t->spin), 0);
}

static void holds_all(void) {
    takes_all();
    t->held = 1;
    AWAIT(t->held == 0);
    gives_all_back();
}

static void *dies_here(void *arg) {
    dies(*(int *)arg);
    return NULL;
}

int main(int argc, char **argv) {
    enum { MEMORY = 100 }; /* the descriptor */
    if (argc > 2) {
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0);
        CHECK(t != MAP_FAILED);
        int i = atoi(argv[2]);
        switch (argv[1][0]) {
        case 'c':
            compete(1);
            return 0;
        case 'i':
            inherits(i);
            return 0;
        case 'f':
            finds_all_busy();
            return 0;
        case 'h':
            holds_all();
            return 0;
        default:
            dies(i);
        }
    }
    FILE *file = tmpfile();
    CHECK(file != NULL);
    CHECK_EQ(dup2(fileno(file), MEMORY), MEMORY);
    CHECK_EQ(ftruncate(MEMORY, sizeof *t), 0);
    t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0);
    CHECK(t != MAP_FAILED);

    set();
    takes_all();
    reap(peer("finds", 0));
    gives_all_back();
    pid_t other = peer("holds", 0);
    AWAIT(t->held);
    finds_all_busy();
    t->held = 0;
    reap(other);

    other = peer("competes", 0);
    compete(0);
    reap(other);
    is_all_there();

    for (int i = 12; i < KINDS; i++) /* robust and shared */
        for (int death = 0; death < DEATHS; death++) {
            set();
            pid_t dying = death % 2 ? spawn(dies_here, &i) : peer("dies", i);
            if (death % 2) {
                reap(peer("inherits", i));
            } else {
                inherits(i);
            }
            reap_killed(dying);
        }
}
