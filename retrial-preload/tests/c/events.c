/* Semaphores and barriers, of one process and of several: what they return, deadlines by both clocks, signals, cancellation. */
#include "check.h"
#include <semaphore.h>

/* A semaphore call reports by -1 and errno. */
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK_EQ(call, -1);                                                                        \
        CHECK_EQ(errno, error);                                                                    \
    } while (0)

static sem_t semaphore;
static atomic_int state;

static void values_and_deadlines(void) {
    struct timespec at = in_ms(CLOCK_REALTIME, 2);
    CHECK_EQ(sem_init(&semaphore, 0, 1), 0);
    RETURNS(sem_wait(&semaphore), 0);
    FAILS(sem_trywait(&semaphore), EAGAIN);
    FAILS(sem_timedwait(&semaphore, &at), ETIMEDOUT);
    FAILS(sem_timedwait(&semaphore, &NS_TOO_MANY), EINVAL);
#if __GLIBC_PREREQ(2, 30)
    at = in_ms(CLOCK_MONOTONIC, 2);
    FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &at), ETIMEDOUT);
    FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &PAST), ETIMEDOUT);
#endif
    /* What is there is taken, however late it is. */
    RETURNS(sem_post(&semaphore), 0);
    RETURNS(sem_timedwait(&semaphore, &PAST), 0);
    CHECK_EQ(sem_destroy(&semaphore), 0);
}

static void *take(void *unused) {
    state = 1;
    CHECK_EQ(sem_wait(&semaphore), 0);
    state = 2;
    return unused;
}

static void a_post_ends_a_wait(void) {
    pthread_t thread;
    CHECK_EQ(sem_init(&semaphore, 0, 0), 0);
    state = 0;
    CHECK_EQ(pthread_create(&thread, NULL, take, NULL), 0);
    AWAIT(state == 1);
    RETURNS(sem_post(&semaphore), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(state, 2);
}

static void nothing(int signal) { (void)signal; }

static void *take_interrupted(void *unused) {
    state = 1;
    errno = 0;
    int result = sem_wait(&semaphore);
    CHECK_EQ(result, -1);
    CHECK_EQ(errno, EINTR);
    state = 2;
    return unused;
}

static void a_signal_ends_a_wait(void) {
    struct sigaction action = {.sa_handler = nothing};
    pthread_t thread;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(sem_init(&semaphore, 0, 0), 0);
    state = 0;
    CHECK_EQ(pthread_create(&thread, NULL, take_interrupted, NULL), 0);
    while (state != 2) {
        CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
        sched_yield();
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void note_cleaned(void *unused) {
    (void)unused;
    state = 3;
}

static void *take_for_ever(void *unused) {
    pthread_cleanup_push(note_cleaned, NULL);
    state = 1;
    sem_wait(&semaphore);
    pthread_cleanup_pop(0);
    return unused;
}

static void *take_what_is_there(void *unused) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    state = 1;
    AWAIT(state == 2);
    pthread_cleanup_push(note_cleaned, NULL);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    sem_wait(&semaphore);
    pthread_cleanup_pop(0);
    return unused;
}

static void a_wait_is_a_cancellation_point(void) {
    pthread_t thread;
    void *result;
    for (int value = 0; value < 2; value++) {
        CHECK_EQ(sem_init(&semaphore, 0, value), 0);
        state = 0;
        CHECK_EQ(pthread_create(&thread, NULL, value ? take_what_is_there : take_for_ever, NULL), 0);
        AWAIT(state == 1);
        CHECK_EQ(pthread_cancel(thread), 0);
        if (value)
            state = 2;
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK_EQ(state, 3);
    }
    /* A thread that was cancelled in a wait has left no trace of it. */
    a_post_ends_a_wait();
}

static pthread_barrier_t barrier;
static atomic_int serials;

static void *meet(void *unused) {
    for (int round = 0; round < 1000; round++) {
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        serials += result == PTHREAD_BARRIER_SERIAL_THREAD;
    }
    return unused;
}

static void all_meet_at_a_barrier(void) {
    pthread_t threads[3];
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, 3), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, meet, NULL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(serials, 1000);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

/* Two processes, and a child that ends a wait of its own which begins in its parent's memory. */
static void processes_share_a_semaphore(void) {
    sem_t *shared = mmap(NULL, 2 * sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK_EQ(sem_init(&shared[0], 1, 0), 0);
    CHECK_EQ(sem_init(&shared[1], 1, 0), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(sem_post(&shared[child == 0]), 0);
        CHECK_EQ(sem_wait(&shared[child != 0]), 0);
    }
    if (child == 0)
        _exit(0);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(void) {
    values_and_deadlines();
    a_post_ends_a_wait();
    a_signal_ends_a_wait();
    a_wait_is_a_cancellation_point();
    all_meet_at_a_barrier();
    processes_share_a_semaphore();
    return 0;
}
