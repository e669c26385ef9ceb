/* What the programs here share: checks that say what they found, deadlines, threads, children.
 *
 * Each program is one family of calls. It exits 0 when all of the family is as POSIX and glibc have
 * it, and does not know who implements it: it has to pass as it is, and under a preloaded library.
 * Nothing asserts an upper bound on time, and nothing sleeps: who needs another thread somewhere
 * waits for the state that shows it, or accepts either order. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Which case of a table is being checked, for the message; empty outside of tables. */
static char about[96];

static inline _Noreturn void check_failed(const char *file, int line, const char *what, long found,
                                          const char *text, long expected) {
    fprintf(stderr, "%s:%d: %s%s: found %ld, expected %s", file, line, about, what, found, text);
    fprintf(stderr, expected == found ? "\n" : " (%ld)\n", expected);
    _exit(1);
}

#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond, 0, "true", 1))

#define CHECK_EQ(value, expected)                                                                  \
    do {                                                                                           \
        long found_ = (long)(value), expected_ = (long)(expected);                                 \
        if (found_ != expected_)                                                                   \
            check_failed(__FILE__, __LINE__, #value, found_, #expected, expected_);                \
    } while (0)

/* A lock call reports by what it returns and leaves errno to the caller. */
#define RETURNS(call, expected)                                                                    \
    do {                                                                                           \
        errno = ERRNO_KEPT;                                                                        \
        long returned_ = (long)(call), errno_ = errno, expected_ = (long)(expected);               \
        if (returned_ != expected_)                                                                \
            check_failed(__FILE__, __LINE__, #call, returned_, #expected, expected_);              \
        if (errno_ != ERRNO_KEPT)                                                                  \
            check_failed(__FILE__, __LINE__, "errno after " #call, errno_, "it kept", ERRNO_KEPT); \
    } while (0)

enum { ERRNO_KEPT = 4711 };

/* Waits for a state that some other thread or process brings about. */
#define AWAIT(cond)                                                                                \
    while (!(cond))                                                                                \
    sched_yield()

/* A program that hangs has failed. */
__attribute__((constructor(101))) static void end_a_hang(void) { alarm(300); }

/* Deadlines. */

static const struct timespec PAST = {0, 0};
static const struct timespec BEFORE_1970 = {-1, 0};
static const struct timespec NS_TOO_FEW = {0, -1};
static const struct timespec NS_TOO_MANY = {0, 1000000000};

static inline struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec at;
    CHECK_EQ(clock_gettime(clock, &at), 0);
    at.tv_nsec += ms % 1000 * 1000000;
    at.tv_sec += ms / 1000 + at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static inline bool reached(clockid_t clock, struct timespec deadline) {
    struct timespec now;
    CHECK_EQ(clock_gettime(clock, &now), 0);
    return now.tv_sec > deadline.tv_sec ||
           (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

/* Threads, children, memory that children share. */

static inline pthread_t start(void *(*body)(void *), void *arg) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, arg), 0);
    return thread;
}

static inline void *finish(pthread_t thread) {
    void *result;
    CHECK_EQ(pthread_join(thread, &result), 0);
    return result;
}

static inline void run_threads(int count, void *(*body)(void *), void *arg) {
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        threads[i] = start(body, arg);
    for (int i = 0; i < count; i++)
        finish(threads[i]);
}

static inline pid_t spawn(void *(*body)(void *), void *arg) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(300); /* not inherited */
        body(arg);
        _exit(0);
    }
    return pid;
}

static inline void reap(pid_t pid) {
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static inline void reap_killed(pid_t pid) {
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, SIGKILL);
}

static inline void run_children(int count, void *(*body)(void *), void *arg) {
    pid_t pids[count];
    for (int i = 0; i < count; i++)
        pids[i] = spawn(body, arg);
    for (int i = 0; i < count; i++)
        reap(pids[i]);
}

static inline void *shared_memory(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static inline bool all_bytes(const void *at, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++)
        if (((const volatile unsigned char *)at)[i] != value)
            return false;
    return true;
}

/* Mutexes of every kind: the four types, private or shared, plain or robust. */

struct kind {
    int type, pshared, robust, protocol;
};

enum { KINDS = 16 };

static inline struct kind kind_at(int i) {
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
                                PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    return (struct kind){.type = types[i % 4],
                         .pshared = i / 4 % 2 ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE,
                         .robust = i / 8 % 2 ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED};
}

static inline void init_kind(pthread_mutex_t *mutex, struct kind k) {
    static const char *const types[] = {"normal", "recursive", "errorcheck", "adaptive"};
    snprintf(about, sizeof about, "[%s%s%s%s] ", types[k.type], k.pshared ? " shared" : "",
             k.robust ? " robust" : "", k.protocol ? " inherit" : "");
    pthread_mutexattr_t attr;
    CHECK_EQ(pthread_mutexattr_init(&attr), 0);
    CHECK_EQ(pthread_mutexattr_settype(&attr, k.type), 0);
    CHECK_EQ(pthread_mutexattr_setpshared(&attr, k.pshared), 0);
    CHECK_EQ(pthread_mutexattr_setrobust(&attr, k.robust), 0);
    CHECK_EQ(pthread_mutexattr_setprotocol(&attr, k.protocol), 0);
    RETURNS(pthread_mutex_init(mutex, &attr), 0);
    CHECK_EQ(pthread_mutexattr_destroy(&attr), 0);
}

/* Kinds whose unlock fails in any thread but the owner's. */
static inline bool knows_owner(struct kind k) {
    return k.robust || k.type == PTHREAD_MUTEX_RECURSIVE || k.type == PTHREAD_MUTEX_ERRORCHECK;
}

struct elsewhere {
    int (*op)(pthread_mutex_t *);
    pthread_mutex_t *mutex;
    int result;
};

static inline void *elsewhere_body(void *arg) {
    struct elsewhere *e = arg;
    errno = ERRNO_KEPT;
    e->result = e->op(e->mutex);
    CHECK_EQ(errno, ERRNO_KEPT);
    return NULL;
}

/* What `op` returns in another thread, which has ended by the time this returns. */
static inline int elsewhere(int (*op)(pthread_mutex_t *), pthread_mutex_t *mutex) {
    struct elsewhere e = {.op = op, .mutex = mutex};
    finish(start(elsewhere_body, &e));
    return e.result;
}

/* Mutual exclusion shows in two counters that only agree while nobody is in between. */
struct torn {
    volatile long left, right;
};

static inline void torn_step(struct torn *t) {
    long seen = t->left;
    CHECK_EQ(t->right, seen);
    t->left = seen + 1;
    for (int i = 0; i < 8; i++)
        atomic_signal_fence(memory_order_seq_cst);
    t->right = seen + 1;
}

#endif
