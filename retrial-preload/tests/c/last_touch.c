/* From the instruction on with which a mutex or spin lock is free, its memory is not touched: a child unlocks one step at a
 * time, its parent looks after each step whether a copy of the object is free, and takes the memory away when it is. */
#include "check.h"
#include <sys/ptrace.h>
#include <threads.h>

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

static const struct family mutex = {make_mutex, mutex_lock, mutex_trylock, mutex_unlock};
static const struct family mtx = {make_mtx, lock_mtx, trylock_mtx, unlock_mtx};
static const struct family spin = {make_spin, spin_lock, spin_trylock, spin_unlock};

static int stopped(pid_t pid) {
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

static void unlocks_by_steps(const struct family *family) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    CHECK_EQ(ftruncate(fileno(file), (off_t)page), 0);
    char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    CHECK(at != MAP_FAILED);
    family->make(at);

    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < 2; i++) { /* the first one finds out who the thread is */
            CHECK_EQ(family->lock(at), 0);
            if (i == 1) {
                CHECK_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
                raise(SIGSTOP);
            }
            CHECK_EQ(family->unlock(at), 0);
        }
        raise(SIGSTOP);
        _exit(0);
    }
    int status = stopped(pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    bool is_free = false;
    for (;;) {
        CHECK_EQ(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        status = stopped(pid);
        CHECK(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        CHECK_EQ(WSTOPSIG(status), SIGTRAP); /* SIGBUS is a touch */
        if (is_free)
            continue;
        union {
            pthread_mutex_t m;
            char bytes[sizeof(pthread_mutex_t)];
        } copy;
        memcpy(copy.bytes, at, sizeof copy);
        is_free = family->trylock(&copy) == 0;
        if (is_free)
            CHECK_EQ(ftruncate(fileno(file), 0), 0);
    }
    CHECK(is_free);
    CHECK_EQ(kill(pid, SIGKILL), 0);
    reap_killed(pid);
    CHECK_EQ(munmap(at, page), 0);
    fclose(file);
}

int main(void) {
    for (int i = 0; i < KINDS / 4; i++) {
        kind = kind_at(i);
        unlocks_by_steps(&mutex);
    }
    about[0] = 0;
    unlocks_by_steps(&mtx);
    unlocks_by_steps(&spin);
}
