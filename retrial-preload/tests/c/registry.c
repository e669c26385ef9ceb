/* Mutexes that come and go, of which some are waited for. The first argument says what is done, the
 * second how often. What an instance knows of them afterwards is the test's to check. */
#include "check.h"
#include <fcntl.h>
#include <sys/syscall.h>

static pthread_mutex_t *wanted;
static atomic_int coming; /* thread that is about to lock it */

static void *waiter(void *unused) {
    (void)unused;
    atomic_store(&coming, (int)syscall(SYS_gettid));
    CHECK_EQ(pthread_mutex_lock(wanted), 0);
    CHECK_EQ(pthread_mutex_unlock(wanted), 0);
    return NULL;
}

/* Whether a thread sleeps: past the name in parentheses the kernel has the state. */
static bool sleeps(int tid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    CHECK(read(file, text, sizeof text - 1) > 0);
    close(file);
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[2] == 'S';
}

/* Two gets, of which the second one misses. */
static void contend(pthread_mutex_t *mutex) {
    wanted = mutex;
    atomic_store(&coming, 0);
    CHECK_EQ(pthread_mutex_lock(mutex), 0);
    pthread_t thread = start(waiter, NULL);
    AWAIT(atomic_load(&coming) != 0);
    AWAIT(sleeps(atomic_load(&coming)));
    CHECK_EQ(pthread_mutex_unlock(mutex), 0);
    finish(thread);
}

static void use(pthread_mutex_t *mutex) {
    CHECK_EQ(pthread_mutex_lock(mutex), 0);
    CHECK_EQ(pthread_mutex_unlock(mutex), 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "again";
    long count = argc > 2 ? atol(argv[2]) : 3;
    pthread_mutex_t *mutexes = calloc((size_t)count, sizeof *mutexes);
    CHECK(mutexes);
    if (!strcmp(what, "unwaited")) { /* each used, destroyed, used no more */
        for (long i = 0; i < count; i++) {
            CHECK_EQ(pthread_mutex_init(&mutexes[i], NULL), 0);
            use(&mutexes[i]);
            CHECK_EQ(pthread_mutex_destroy(&mutexes[i]), 0);
        }
    } else if (!strcmp(what, "one-of")) { /* many are used and stay; one is waited for */
        for (long i = 0; i < count; i++)
            use(&mutexes[i]);
        contend(&mutexes[count - 1]);
    } else if (!strcmp(what, "missed")) { /* each is missed by a thread that gives up, and destroyed */
        for (long i = 0; i < count; i++) {
            CHECK_EQ(pthread_mutex_lock(&mutexes[i]), 0);
            CHECK_EQ(pthread_mutex_timedlock(&mutexes[i], &PAST), ETIMEDOUT);
            CHECK_EQ(pthread_mutex_unlock(&mutexes[i]), 0);
            CHECK_EQ(pthread_mutex_destroy(&mutexes[i]), 0);
        }
    } else if (!strcmp(what, "again")) { /* one after another at the same address, each waited for */
        for (long i = 0; i < count; i++) {
            CHECK_EQ(pthread_mutex_init(mutexes, NULL), 0);
            contend(mutexes);
            CHECK_EQ(pthread_mutex_destroy(mutexes), 0);
        }
    } else if (!strcmp(what, "fork")) { /* a child goes on with its parent's mutex, which is waited for in both */
        contend(mutexes);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (long i = 0; i < count; i++)
                contend(mutexes);
            exit(0);
        }
        reap(child);
    } else if (!strcmp(what, "exit")) { /* children that end without a word */
        for (long i = 0; i < count; i++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                contend(mutexes);
                _exit(0);
            }
            reap(child);
        }
    } else {
        CHECK(!"a case");
    }
    return 0;
}
