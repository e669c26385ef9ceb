/* A handler of a signal jumps out of a wait. The thread's stack is used for other things then, and it ends in
 * each way. */
#include "check.h"
#include <semaphore.h>
#include <setjmp.h>

static sigjmp_buf back;
static sem_t sem;
static pthread_mutex_t m;
static pthread_cond_t cond;
static int cleaned;

static void jumps(int signal) {
    CHECK_EQ(signal, SIGUSR1);
    siglongjmp(back, 1);
}

static void cleans(void *arg) {
    (void)arg;
    cleaned++;
}

/* Where the wait had its frames. */
__attribute__((noinline)) static void use_stack(void) {
    volatile char bytes[4096];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = 0x41;
}

__attribute__((noinline)) static void ends(bool by_cancel) {
    use_stack();
    if (!by_cancel)
        pthread_exit(NULL);
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    pthread_testcancel();
}

struct how {
    bool on_condition, by_cancel;
};

static void block(int how) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK_EQ(pthread_sigmask(how, &one, NULL), 0);
}

static void *jumps_out(void *arg) {
    const struct how *how = arg;
    pthread_cleanup_push(cleans, NULL);
    if (sigsetjmp(back, 1) == 0) {
        if (how->on_condition) {
            RETURNS(pthread_mutex_lock(&m), 0);
            block(SIG_UNBLOCK);
            pthread_cond_wait(&cond, &m);
        } else {
            block(SIG_UNBLOCK);
            sem_wait(&sem);
        }
        CHECK(false);
    }
    /* Libc gets the mutex back on the way. */
    if (how->on_condition)
        RETURNS(pthread_mutex_unlock(&m), 0);
    ends(how->by_cancel);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = jumps}, NULL) == 0);
    CHECK_EQ(sem_init(&sem, 0, 0), 0);
    block(SIG_BLOCK);
    for (int i = 0; i < 4; i++) {
        struct how how = {.on_condition = i % 2, .by_cancel = i / 2};
        snprintf(about, sizeof about, "[%d] ", i);
        pthread_mutex_init(&m, NULL), pthread_cond_init(&cond, NULL);
        m = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        pthread_t thread = start(jumps_out, &how);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
        CHECK(finish(thread) == (how.by_cancel ? PTHREAD_CANCELED : NULL));
        CHECK_EQ(cleaned, i + 1);
        RETURNS(pthread_cond_destroy(&cond), 0);
    }
}
