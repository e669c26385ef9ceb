/* Threads that wait for long cost others nothing, and little themselves: system calls of a library that has the
 * locks are counted, where it makes them by libc's call. */
#include "check.h"
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>

enum { THREADS = 64, OTHERS = 4096, ROUNDS = 4, SECONDS = 2 };

static atomic_long waits, wakes;

long syscall(long number, ...) {
    static long (*_Atomic real)(long, ...);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long with[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        with[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex) {
        int op = (int)with[1] & FUTEX_CMD_MASK;
        waits += op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET;
        wakes += op == FUTEX_WAKE || op == FUTEX_WAKE_BITSET;
    }
    return real(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}

static pthread_mutex_t held[THREADS], others[OTHERS];
static atomic_int ids[THREADS];

static void *waits_long(void *arg) {
    long i = (long)arg;
    ids[i] = (int)gettid();
    CHECK_EQ(pthread_mutex_lock(&held[i]), 0);
    CHECK_EQ(pthread_mutex_unlock(&held[i]), 0);
    return NULL;
}

static bool sleeps(int id) {
    char name[64], stat[128] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    CHECK(fgets(stat, sizeof stat, file) != NULL);
    fclose(file);
    return strstr(stat, ") S ") != NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < OTHERS; i++)
        CHECK_EQ(pthread_mutex_init(&others[i], NULL), 0);
    for (long i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_mutex_init(&held[i], NULL), 0);
        CHECK_EQ(pthread_mutex_lock(&held[i]), 0);
        threads[i] = start(waits_long, (void *)i);
        AWAIT(ids[i] != 0 && sleeps(ids[i]));
    }

    /* Nobody waits for these, whatever they share with those that are waited for. */
    wakes = 0;
    for (int i = 0; i < ROUNDS * OTHERS; i++) {
        CHECK_EQ(pthread_mutex_lock(&others[i % OTHERS]), 0);
        CHECK_EQ(pthread_mutex_unlock(&others[i % OTHERS]), 0);
    }
    CHECK(wakes <= ROUNDS * OTHERS / 100);

    /* A waiting thread looks when it has waited for twice as long as at its last look. */
    waits = 0;
    struct timespec end = in_ms(CLOCK_MONOTONIC, SECONDS * 1000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
    long looks = 1;
    for (struct timespec past = end; !reached(CLOCK_MONOTONIC, past); past.tv_sec++)
        looks++; /* this machine was slow */
    CHECK(waits <= THREADS * (10 + looks));

    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_mutex_unlock(&held[i]), 0);
        finish(threads[i]);
    }
}
