/* Half of the processes that contend for a robust process-shared mutex are killed at random moments. What must hold then:
 * the others go on, each death of an owner is told, nothing is lost, and nobody is let in beside another.
 *
 *   killed rounds COUNT HOLD_NS GETS SEED    rounds on a mutex of our own
 *   killed load SEED ENVIRONMENT FILE...     one round of six mdb_load, of a file each, on one environment of LMDB
 *
 * Processes are exec'ed, as real ones are, so that whatever is preloaded starts in each; what they share is a file in memory
 * that each maps where it likes. The driver takes no part in the mutex. It ends with 0 whatever it found, and prints a line of
 * JSON for each round.
 *
 * A round is "hung" when those who were left stood still: asleep at all of 2,000 looks a millisecond apart, or awake at some of
 * 10,000, without one get. Looks are counted, not seconds, so that a machine that is slow or away is no hang. The driver then
 * wakes one waiter of the mutex, once; "woken" says that all went on to the end after that: the wake-up is what was lacking.
 * "word" is the mutex's before it, "states" those of the processes. The seed decides who is killed, and when. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 6, KILLED = 3, NOBODY = -1 };

/* Looks, a millisecond apart. */
enum { ASLEEP_LOOKS = 2000, STILL_LOOKS = 10000 };

/* Deaths of mdb_load come within this time of the first commit, of others within that of so many sections. */
enum { LOAD_KILLS_NS = 50000000, SECTIONS = 50 };

/* What one process says of itself; whoever is killed leaves it as it was. */
struct account {
    atomic_bool began, inside;
    atomic_long gets, told, violations;
    atomic_int failed; /* what a call returned that it may not */
} __attribute__((aligned(64)));

struct shared {
    pthread_mutex_t mutex;
    long hold_ns, gets;
    atomic_bool killed; /* all who will be */
    /* The invariant: left and right are equal and nobody is the owner, while nobody has the mutex. */
    volatile long left, right;
    volatile int owner;
    struct account accounts[PROCESSES];
};

static struct shared *shared;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "killed: %s: %s\n", what, strerror(errno));
    exit(2);
}

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_ns(long ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

static void map(int fd) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
}

/* A member: gets, breaks the invariant for a while, mends it, releases. */

static void must(struct account *own, bool holds) { own->violations += !holds; }

static void lock(struct account *own) {
    int result = pthread_mutex_lock(&shared->mutex);
    if (result == EOWNERDEAD) {
        own->told++;
        own->inside = true;
        must(own, shared->left == shared->right || shared->left == shared->right + 1);
        shared->right = shared->left;
        shared->owner = NOBODY;
        result = pthread_mutex_consistent(&shared->mutex);
    }
    if (result != 0) {
        own->failed = result;
        _exit(1);
    }
    own->inside = true;
}

static void section(struct account *own, int me) {
    must(own, shared->owner == NOBODY && shared->left == shared->right);
    shared->owner = me;
    long seen = ++shared->left;
    for (long end = now_ns() + shared->hold_ns; now_ns() < end;)
        ;
    must(own, shared->owner == me && shared->left == seen && shared->right == seen - 1);
    shared->right = seen;
    own->gets++;
    shared->owner = NOBODY;
}

static void unlock(struct account *own) {
    own->inside = false;
    int result = pthread_mutex_unlock(&shared->mutex);
    if (result != 0) {
        own->failed = result;
        _exit(1);
    }
}

static int member(int me) {
    struct account *own = &shared->accounts[me];
    own->began = true;
    for (long further = 0; further < shared->gets; further += shared->killed) {
        lock(own);
        section(own, me);
        unlock(own);
    }
    return 0;
}

/* The driver. */

/* The generator is splitmix64. */
static uint64_t random_below(uint64_t *seed, uint64_t limit) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % limit;
}

struct round {
    pid_t pids[PROCESSES]; /* 0: has ended */
    long (*progress)(void);
    atomic_int *word;
    int kills, holders_killed, errors;
    bool hung, woken;
    unsigned hung_word;
    char states[PROCESSES * 64];
};

static pid_t start(char *const arguments[]) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody outlives the driver */
        execvp(arguments[0], arguments);
        fail(arguments[0]);
    }
    if (pid < 0)
        fail("fork");
    return pid;
}

static void read_file(pid_t pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, text, size - 1);
    text[length < 0 ? 0 : length] = 0;
    if (fd >= 0)
        close(fd);
}

/* As the kernel shows it: S asleep, R running, T stopped, and others. */
static char state(pid_t pid) {
    char text[512], *name_end;
    read_file(pid, "stat", text, sizeof text);
    name_end = strrchr(text, ')');
    return name_end && name_end[1] ? name_end[2] : '?';
}

/* Whether anybody has ended since the last look. */
static bool reap(struct round *r, int *left) {
    bool any = false;
    *left = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        if (r->pids[i] != 0 && waitpid(r->pids[i], &status, WNOHANG) == r->pids[i]) {
            r->errors += status != 0;
            r->pids[i] = 0;
            any = true;
        }
        *left += r->pids[i] != 0;
    }
    return any;
}

static void note_hang(struct round *r) {
    r->hung = true;
    r->hung_word = r->word ? *r->word : 0;
    size_t length = 0;
    for (int i = 0; i < PROCESSES; i++)
        if (r->pids[i] != 0) {
            char where[40];
            read_file(r->pids[i], "wchan", where, sizeof where);
            length += snprintf(r->states + length, sizeof r->states - length, "%s%d:%c:%s", length ? "," : "",
                               r->pids[i], state(r->pids[i]), where);
        }
}

/* Until all have ended, or stand still. */
static bool all_end(struct round *r) {
    int asleep = 0, still = 0, left;
    for (long before = -1;;) {
        bool moved = reap(r, &left);
        if (left == 0)
            return true;
        long progress = r->progress();
        if (moved || progress != before) {
            asleep = still = 0;
            before = progress;
        } else {
            int sleeping = 0, stopped = 0;
            for (int i = 0; i < PROCESSES; i++)
                if (r->pids[i] != 0) {
                    char found = state(r->pids[i]);
                    sleeping += found == 'S';
                    stopped += found == 'T' || found == 't';
                }
            asleep = sleeping == left ? asleep + 1 : 0;
            still = stopped == 0 ? still + 1 : 0;
            if (asleep == ASLEEP_LOOKS || still == STILL_LOOKS)
                return false;
        }
        sleep_ns(1000000);
    }
}

static void kill_some(struct round *r, uint64_t *seed, long within_ns) {
    int order[PROCESSES];
    long moments[KILLED], begin = now_ns();
    for (int i = 0; i < PROCESSES; i++) {
        int j = random_below(seed, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < KILLED; i++) {
        int at = i;
        long moment = random_below(seed, within_ns);
        for (; at > 0 && moments[at - 1] > moment; at--)
            moments[at] = moments[at - 1];
        moments[at] = moment;
    }
    for (int i = 0; i < KILLED; i++) {
        long left = begin + moments[i] - now_ns();
        if (left > 0)
            sleep_ns(left);
        kill(r->pids[order[i]], SIGKILL);
    }
    for (int i = 0; i < KILLED; i++) {
        int status;
        pid_t *pid = &r->pids[order[i]];
        if (waitpid(*pid, &status, 0) != *pid)
            fail("waitpid");
        *pid = 0;
        r->kills += WIFSIGNALED(status);
        r->errors += status != 0 && !WIFSIGNALED(status);
        r->holders_killed += shared && shared->accounts[order[i]].inside;
    }
}

/* A moment of waiting for what they do first. */
static void await_start(struct round *r) {
    int left;
    if (reap(r, &left)) {
        fprintf(stderr, "killed: a process ended before the first was killed\n");
        exit(2);
    }
    sleep_ns(100000);
}

static void finish(struct round *r) {
    if (all_end(r))
        return;
    note_hang(r);
    if (r->word) {
        syscall(SYS_futex, r->word, FUTEX_WAKE, 1, NULL, NULL, 0);
        if (all_end(r)) {
            r->woken = true;
            return;
        }
    }
    for (int i = 0; i < PROCESSES; i++)
        if (r->pids[i] != 0) {
            kill(r->pids[i], SIGKILL);
            waitpid(r->pids[i], NULL, 0);
        }
}

static void report(const struct round *r, uint64_t seed, long told, long violations, int not_recoverable) {
    printf("{\"seed\":%lu,\"kills\":%d,\"holders_killed\":%d,\"owner_deaths\":%ld,\"violations\":%ld,", seed, r->kills,
           r->holders_killed, told, violations);
    printf("\"not_recoverable\":%d,\"errors\":%d,\"hung\":%s,\"woken\":%s,", not_recoverable, r->errors,
           r->hung ? "true" : "false", r->woken ? "true" : "false");
    printf("\"word\":%u,\"states\":\"%s\"}\n", r->hung_word, r->states);
    fflush(stdout);
}

static long gets(void) {
    long sum = 0;
    for (int i = 0; i < PROCESSES; i++)
        sum += shared->accounts[i].gets;
    return sum;
}

static void init(long hold_ns, long further_gets) {
    pthread_mutexattr_t attr;
    memset(shared, 0, sizeof *shared);
    shared->hold_ns = hold_ns;
    shared->gets = further_gets;
    shared->owner = NOBODY;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attr);
}

static void one_round(int fd, uint64_t seed) {
    struct round r = {.progress = gets, .word = (atomic_int *)&shared->mutex};
    uint64_t random = seed;
    for (int i = 0; i < PROCESSES; i++) {
        char fd_text[16], index[16];
        snprintf(fd_text, sizeof fd_text, "%d", fd);
        snprintf(index, sizeof index, "%d", i);
        r.pids[i] = start((char *[]){"/proc/self/exe", "member", fd_text, index, NULL});
    }
    for (int i = 0; i < PROCESSES; i++)
        while (!shared->accounts[i].began)
            await_start(&r);
    kill_some(&r, &random, SECTIONS * shared->hold_ns);
    shared->killed = true;
    finish(&r);
    long told = 0, violations = 0;
    int not_recoverable = 0;
    for (int i = 0; i < PROCESSES; i++) {
        const struct account *account = &shared->accounts[i];
        told += account->told;
        violations += account->violations;
        not_recoverable += account->failed == ENOTRECOVERABLE;
    }
    if (!r.hung || r.woken) {
        /* Each death inside was told, and whoever died lost one get at most. */
        violations += told < r.holders_killed || told > r.kills;
        violations += shared->left != shared->right || shared->owner != NOBODY;
        violations += shared->left < gets() || shared->left > gets() + r.holders_killed;
    }
    report(&r, seed, told, violations, not_recoverable);
}

static int rounds(int count, long hold_ns, long further_gets, uint64_t seed) {
    int fd = memfd_create("killed", 0);
    if (fd < 0 || ftruncate(fd, sizeof *shared) != 0)
        fail("shared memory");
    map(fd);
    for (int i = 0; i < count; i++) {
        init(hold_ns, further_gets);
        one_round(fd, seed + i);
    }
    return 0;
}

/* LMDB: each commit writes one of the two meta pages at the beginning of the file. */
static const char *environment;

static long commits(void) {
    char path[PATH_MAX], pages[8192];
    snprintf(path, sizeof path, "%s/data.mdb", environment);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : pread(fd, pages, sizeof pages, 0);
    uint64_t hash = 0xcbf29ce484222325;
    for (ssize_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)pages[i]) * 0x100000001b3;
    if (fd >= 0)
        close(fd);
    return hash >> 1;
}

static int load(uint64_t seed, char *directory, char *files[]) {
    struct round r = {.progress = commits};
    uint64_t random = seed;
    environment = directory;
    for (int i = 0; i < PROCESSES; i++)
        r.pids[i] = start((char *[]){"mdb_load", "-f", files[i], directory, NULL});
    for (long first = commits(); commits() == first;)
        await_start(&r);
    kill_some(&r, &random, LOAD_KILLS_NS);
    finish(&r);
    report(&r, seed, 0, 0, 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "member") == 0 && argc == 4) {
        map(atoi(argv[2]));
        return member(atoi(argv[3]));
    }
    prctl(PR_SET_TIMERSLACK, 1000); /* the moments are to be exact */
    if (strcmp(mode, "rounds") == 0 && argc == 6)
        return rounds(atoi(argv[2]), atol(argv[3]), atol(argv[4]), strtoull(argv[5], NULL, 10));
    if (strcmp(mode, "load") == 0 && argc == 4 + PROCESSES)
        return load(strtoull(argv[2], NULL, 10), argv[3], argv + 4);
    fprintf(stderr, "killed rounds COUNT HOLD_NS GETS SEED | killed load SEED ENVIRONMENT FILE (six files)\n");
    return 2;
}
