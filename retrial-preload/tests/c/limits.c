/* A program that keeps all of its memory in place, as a real-time program does, with the limit that an ordinary user has, and
 * whose threads then lock and wait. */
#include "check.h"
#include <sys/resource.h>

enum { THREADS = 32, ROUNDS = 200, LIMIT = 8 << 20 };

static struct torn torn;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *locks(void *arg) {
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQ(pthread_mutex_lock(&mutex), 0);
        torn_step(&torn);
        CHECK_EQ(pthread_mutex_unlock(&mutex), 0);
    }
    return arg;
}

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmLck: %ld", &kib);
    fclose(status);
    return kib;
}

int main(int argc, char **argv) {
    (void)argv;
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    /* Root has no such limit. */
    if (geteuid() == 0)
        CHECK_EQ(setuid(65534), 0);
    CHECK_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
    if (argc > 1)
        printf("%ld KiB locked\n", locked_kib());
    pthread_attr_t attr;
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attr, (size_t)sysconf(_SC_THREAD_STACK_MIN)), 0);
    pthread_t threads[THREADS];
    int started = 0;
    /* As many as the limit allows. */
    while (started < THREADS && pthread_create(&threads[started], &attr, locks, NULL) == 0)
        started++;
    CHECK(started > 0);
    for (int i = 0; i < started; i++)
        finish(threads[i]);
    CHECK_EQ(torn.left, started * ROUNDS);
}
