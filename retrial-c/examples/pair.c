/* What an uncontended get and its release cost, beside what else a C program could use.
 *
 *   cc -std=c11 -O2 pair.c $(pkg-config --cflags --libs retrial) -o pair
 *   ./pair [ROUNDS [file]]
 *
 * All in one binary and one thread, in rounds that take turns; a figure is the median of the rounds, a ratio the median
 * of the ratios within each round. A second thread sleeps meanwhile: glibc takes short cuts where there is one only.
 * Concurrency Kit's spin lock is among them where its header is (libck-dev). All that a pair needs is in local variables;
 * with `file` it is in variables of the file, which the compiler loads again behind each exchange. */
#define _GNU_SOURCE
#include <pthread.h>
#include <retrial.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if __has_include(<ck_spinlock.h>)
#include <ck_spinlock.h>
#define HAS_CK 1
#else
#define HAS_CK 0
#endif

enum { PAIRS = 300000, ROUNDS_MAX = 1001 };

struct all {
    retrial_session *session;
    retrial_mutex *mutex, *outer;
    pthread_mutex_t *plain, *shared, *robust;
    uint64_t *bare, *log_record, *counter;
#if HAS_CK
    ck_spinlock_fas_t *fas;
#endif
};

static struct all all;
static int is_of_the_file;
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;

static void check(int answer) {
    if (answer != RETRIAL_OK) {
        fprintf(stderr, "%s: %s\n", retrial_strerror(answer), retrial_message());
        exit(1);
    }
}

static void expect(int is_so) {
    if (!is_so) {
        fprintf(stderr, "a call of the C library was refused\n");
        exit(1);
    }
}

#define INLINE static inline __attribute__((always_inline))

INLINE void exchange_and_store(const struct all *all) {
    uint64_t word = 0;
    __atomic_store_n(all->log_record, 1, __ATOMIC_RELAXED);
    expect(__atomic_compare_exchange_n(all->bare, &word, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    ++*all->counter;
    __atomic_store_n(all->bare, 0, __ATOMIC_RELEASE);
    __atomic_store_n(all->log_record, 0, __ATOMIC_RELEASE);
}

INLINE void inlined(const struct all *all) {
    check(retrial_mutex_get(all->session, all->mutex, RETRIAL_X, RETRIAL_HERE));
    ++*all->counter;
    check(retrial_mutex_release(all->session, all->mutex));
}

INLINE void called(const struct all *all) {
    check(retrial_mutex_get_call(all->session, all->mutex, RETRIAL_X, RETRIAL_FOREVER, RETRIAL_HERE));
    ++*all->counter;
    check(retrial_mutex_release_call(all->session, all->mutex));
}

INLINE void in_s(const struct all *all) {
    check(retrial_mutex_get(all->session, all->mutex, RETRIAL_S, RETRIAL_HERE));
    ++*all->counter;
    check(retrial_mutex_release(all->session, all->mutex));
}

INLINE void with_pthread(const struct all *all, pthread_mutex_t *at) {
    expect(pthread_mutex_lock(at) == 0);
    ++*all->counter;
    expect(pthread_mutex_unlock(at) == 0);
}

#if HAS_CK
INLINE void ck_fas(const struct all *all) {
    ck_spinlock_fas_lock(all->fas);
    ++*all->counter;
    ck_spinlock_fas_unlock(all->fas);
}
#endif

INLINE void default_pthread(const struct all *all) { with_pthread(all, all->plain); }
INLINE void shared_pthread(const struct all *all) { with_pthread(all, all->shared); }
INLINE void robust_pthread(const struct all *all) { with_pthread(all, all->robust); }

#define TIMES(pair) \
    __attribute__((noinline)) static double times_##pair(void) { \
        struct timespec from, to; \
        const struct all copy = all; \
        clock_gettime(CLOCK_MONOTONIC, &from); \
        if (is_of_the_file) { \
            for (int i = 0; i < PAIRS; i++) { \
                pair(&all); \
            } \
        } else { \
            for (int i = 0; i < PAIRS; i++) { \
                pair(&copy); \
            } \
        } \
        clock_gettime(CLOCK_MONOTONIC, &to); \
        return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / PAIRS; \
    }

TIMES(exchange_and_store)
TIMES(inlined)
TIMES(called)
TIMES(in_s)
#if HAS_CK
TIMES(ck_fas)
#endif
TIMES(default_pthread)
TIMES(shared_pthread)
TIMES(robust_pthread)

static double times_nested(void) {
    check(retrial_mutex_get(all.session, all.outer, RETRIAL_X, RETRIAL_HERE));
    double ns = times_inlined();
    check(retrial_mutex_release(all.session, all.outer));
    return ns;
}

static const struct peer {
    const char *name;
    double (*time)(void);
} peers[] = {
    {"exchange and store, log store", times_exchange_and_store},
    {"retrial X, inlined", times_inlined},
    {"retrial X by calls", times_called},
    {"retrial X beside another one held", times_nested},
    {"retrial S", times_in_s},
#if HAS_CK
    {"ck_spinlock_fas", times_ck_fas},
#endif
    {"pthread, default", times_default_pthread},
    {"pthread, process-shared", times_shared_pthread},
    {"pthread, process-shared and robust", times_robust_pthread},
};

enum { PEERS = sizeof peers / sizeof *peers, BARE = 0, ROBUST = PEERS - 1 };

static int in_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *of, int rounds) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, of, sizeof *of * (size_t)rounds);
    qsort(sorted, (size_t)rounds, sizeof *sorted, in_order);
    return sorted[rounds / 2];
}

static double ratio(double (*times)[ROUNDS_MAX], int peer, int to, int rounds) {
    double ratios[ROUNDS_MAX];
    for (int round = 0; round < rounds; round++) {
        ratios[round] = times[peer][round] / times[to][round];
    }
    return median(ratios, rounds);
}

static void init(pthread_mutex_t *at, int is_robust) {
    pthread_mutexattr_t attributes;
    expect(pthread_mutexattr_init(&attributes) == 0);
    expect(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    expect(pthread_mutexattr_setrobust(&attributes, is_robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED) == 0);
    expect(pthread_mutex_init(at, &attributes) == 0);
}

static void *sleeps(void *unused) {
    for (;;) {
        pause();
    }
    return unused;
}

int main(int argc, char **argv) {
    static double times[PEERS][ROUNDS_MAX];
    const int rounds = argc > 1 ? atoi(argv[1]) : 51;
    is_of_the_file = argc > 2 && strcmp(argv[2], "file") == 0;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: pair [ROUNDS [file]], 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    pthread_t other;
    expect(pthread_create(&other, NULL, sleeps, NULL) == 0);
    retrial_instance *instance;
    void *data;
    check(retrial_instance_anonymous(NULL, &instance));
    check(retrial_session_open(instance, "pairs", &all.session));
    check(retrial_mutex_named(instance, "pair", "pair", 8, &all.mutex, &data));
    check(retrial_mutex_named(instance, "outer", "pair", 8, &all.outer, NULL));
    all.counter = data;
    all.plain = &plain;
    char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED);
    all.shared = (pthread_mutex_t *)memory;
    all.robust = (pthread_mutex_t *)(memory + 128);
    all.bare = (uint64_t *)(memory + 256);
    all.log_record = (uint64_t *)(memory + 384);
#if HAS_CK
    all.fas = (ck_spinlock_fas_t *)(memory + 512);
    ck_spinlock_fas_init(all.fas);
#endif
    init(all.shared, 0);
    init(all.robust, 1);
    for (int round = 0; round < rounds; round++) {
        for (int peer = 0; peer < PEERS; peer++) {
            times[peer][round] = peers[peer].time();
        }
    }
    printf("%-36s %8s %10s %12s\n", "get, count, release", "ns", "to bare", "to robust");
    for (int peer = 0; peer < PEERS; peer++) {
        printf("%-36s %8.2f %10.2f %12.2f\n", peers[peer].name, median(times[peer], rounds),
               ratio(times, peer, BARE, rounds), ratio(times, peer, ROBUST, rounds));
    }
    if (*all.counter != (uint64_t)rounds * PAIRS * PEERS) {
        fprintf(stderr, "counted %llu, expected %llu\n", (unsigned long long)*all.counter,
                (unsigned long long)rounds * PAIRS * PEERS);
        return 1;
    }
    check(retrial_session_close(all.session));
    check(retrial_instance_close(instance));
    return 0;
}
