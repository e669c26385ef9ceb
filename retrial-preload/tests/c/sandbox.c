/* A program that puts itself into a sandbox: after its filter is installed the kernel kills it at any system
 * call but those that libc makes itself for its locks, for threads, for memory and for the end. Then threads
 * start, get locks that are free and locks that are busy, wait for seconds, and fork.
 *
 * The first argument says how the filter is installed, the second whether locks were used before it. */
#include "everything.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FIELD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), RETURN(SECCOMP_RET_ALLOW)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))

static void enter(const char *how) {
    struct sock_filter filter[] = {
        FIELD(nr),
        ALLOW(SYS_futex),
        /* Threads, their stacks and their ends. */
        ALLOW(SYS_mmap),
        ALLOW(SYS_munmap),
        ALLOW(SYS_brk),
        ALLOW(SYS_getrandom),
        ALLOW(SYS_mprotect),
        ALLOW(SYS_clone),
        ALLOW(SYS_clone3),
        ALLOW(SYS_set_robust_list),
        ALLOW(SYS_rseq),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_rt_sigaction),
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        /* What a failed check and the parent of a child need. */
        ALLOW(SYS_write),
        ALLOW(SYS_wait4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        FIELD(args[2]), /* the lower half */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_DONTNEED, 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (strcmp(how, "prctl") == 0)
        CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    else if (strcmp(how, "syscall") == 0)
        CHECK_EQ(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
    else
        CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

/* Like `use_everything`, without a system call of the program's own. */
static void lock_everything(struct everything *e) {
    for (int i = 0; i < KINDS; i++) {
        pthread_mutex_t *m = &e->mutexes[i];
        struct timespec near = in_ms(CLOCK_REALTIME, 1);
        CHECK_EQ(pthread_mutex_lock(m), 0);
        int result = pthread_cond_timedwait(&e->cond, m, &near);
        CHECK(result == 0 || result == ETIMEDOUT);
        CHECK_EQ(pthread_cond_broadcast(&e->cond), 0);
        CHECK_EQ(pthread_mutex_unlock(m), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_rwlock_rdlock(&e->rw[i]), 0);
        CHECK_EQ(pthread_rwlock_unlock(&e->rw[i]), 0);
        CHECK_EQ(pthread_rwlock_wrlock(&e->rw[i]), 0);
        CHECK_EQ(pthread_rwlock_unlock(&e->rw[i]), 0);
    }
    CHECK_EQ(pthread_spin_lock(&e->spin), 0);
    CHECK_EQ(pthread_spin_unlock(&e->spin), 0);
    CHECK_EQ(mtx_lock(&e->mtx), thrd_success);
    CHECK_EQ(mtx_unlock(&e->mtx), thrd_success);
}

enum { THREADS = 8, ROUNDS = 200, LONG_MS = 2200 };

static struct everything all;
static struct torn torn;
static pthread_mutex_t before = PTHREAD_MUTEX_INITIALIZER, busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static atomic_bool is_held;

static void *competes(void *arg) {
    /* The first lock of this thread, nobody has it. */
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    CHECK_EQ(pthread_mutex_lock(&own), 0);
    CHECK_EQ(pthread_mutex_unlock(&own), 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQ(pthread_mutex_lock(&busy), 0);
        for (int i = 0; i < 100; i++)
            torn_step(&torn);
        CHECK_EQ(pthread_mutex_unlock(&busy), 0);
    }
    lock_everything(&all);
    return arg;
}

/* So long that those who wait do all that waiters ever do. */
static void *holds_for_long(void *arg) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    CHECK_EQ(pthread_mutex_lock(&busy), 0);
    CHECK_EQ(pthread_rwlock_wrlock(&all.rw[0]), 0);
    CHECK_EQ(pthread_mutex_lock(&all.mutexes[4]), 0); /* process-shared */
    CHECK_EQ(pthread_spin_lock(&all.spin), 0);
    is_held = true;
    struct timespec at = in_ms(CLOCK_MONOTONIC, LONG_MS);
    CHECK_EQ(pthread_mutex_lock(&own), 0);
    CHECK_EQ(pthread_cond_clockwait(&never, &own, CLOCK_MONOTONIC, &at), ETIMEDOUT);
    CHECK_EQ(pthread_spin_unlock(&all.spin), 0);
    CHECK_EQ(pthread_mutex_unlock(&all.mutexes[4]), 0);
    CHECK_EQ(pthread_rwlock_unlock(&all.rw[0]), 0);
    CHECK_EQ(pthread_mutex_unlock(&busy), 0);
    return arg;
}

static void *waits(void *arg) {
    while (!is_held)
        ;
    switch ((intptr_t)arg % 4) {
    case 0:
        CHECK_EQ(pthread_mutex_lock(&busy), 0);
        CHECK_EQ(pthread_mutex_unlock(&busy), 0);
        break;
    case 1:
        CHECK_EQ(pthread_rwlock_rdlock(&all.rw[0]), 0);
        CHECK_EQ(pthread_rwlock_unlock(&all.rw[0]), 0);
        break;
    case 2:
        CHECK_EQ(pthread_mutex_lock(&all.mutexes[4]), 0);
        CHECK_EQ(pthread_mutex_unlock(&all.mutexes[4]), 0);
        break;
    case 3:
        CHECK_EQ(pthread_spin_lock(&all.spin), 0);
        CHECK_EQ(pthread_spin_unlock(&all.spin), 0);
        break;
    }
    return NULL;
}

static void works(void) {
    run_threads(THREADS, competes, NULL);
    CHECK_EQ(torn.left, THREADS * ROUNDS * 100);
    pthread_t holder = start(holds_for_long, NULL), threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(waits, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        finish(threads[i]);
    finish(holder);
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 3);
    if (strcmp(argv[2], "used") == 0) {
        init_everything(&all);
        CHECK_EQ(pthread_mutex_lock(&before), 0);
        CHECK_EQ(pthread_mutex_unlock(&before), 0);
        run_threads(2, competes, NULL);
        torn = (struct torn){0, 0};
    }
    enter(argv[1]);
    if (strcmp(argv[2], "used") != 0)
        init_everything(&all);
    works();
    is_held = false;
    torn = (struct torn){0, 0};
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        works();
    else
        reap(pid);
}
