// Processes that write to one LMDB environment: each transaction takes the write lock, a robust process-shared mutex.
// lmdb DIRECTORY PROCESSES SECONDS
#include <lmdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Waits by their length: 16 classes in each power of two of ns.
enum { CLASSES = 64 * 16, KEYS = 10000 };

struct board {
    atomic_uint ready;
    atomic_ulong transactions, longest_ns, waits[CLASSES];
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(int error, const char *what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(error));
        exit(1);
    }
}

static int class_of(unsigned long ns) {
    int power = 63 - __builtin_clzl(ns | 16);
    return power * 16 + (int)(ns >> (power - 4) & 15);
}

static double us_of(int class) {
    return (double)(16 + class % 16) * (1ul << (class / 16 - 4)) / 1e3;
}

static double quantile(struct board *board, double share) {
    unsigned long all = 0, below = 0;
    for (int i = 0; i < CLASSES; i++) all += board->waits[i];
    for (int i = 0; i < CLASSES; i++) {
        below += board->waits[i];
        if (below > 0 && below >= share * all) return us_of(i);
    }
    return 0;
}

static void work(const char *directory, struct board *board, unsigned processes, double seconds) {
    MDB_env *env;
    check(mdb_env_create(&env), "mdb_env_create");
    check(mdb_env_set_mapsize(env, 256ul << 20), "mdb_env_set_mapsize");
    // Not the disk is to be measured.
    check(mdb_env_open(env, directory, MDB_NOSYNC, 0600), directory);
    board->ready++;
    while (board->ready < processes) usleep(100);
    unsigned random = getpid();
    char text[100];
    memset(text, 'x', sizeof text);
    for (double end = now() + seconds; now() < end;) {
        MDB_txn *txn;
        MDB_dbi dbi;
        double asked = now();
        check(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
        unsigned long waited = (now() - asked) * 1e9, longest = board->longest_ns;
        check(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi), "mdb_dbi_open");
        unsigned number = rand_r(&random) % KEYS;
        MDB_val key = { sizeof number, &number }, value = { sizeof text, text };
        check(mdb_put(txn, dbi, &key, &value, 0), "mdb_put");
        check(mdb_txn_commit(txn), "mdb_txn_commit");
        board->transactions++;
        board->waits[class_of(waited)]++;
        while (waited > longest && !atomic_compare_exchange_weak(&board->longest_ns, &longest, waited)) {}
    }
    mdb_env_close(env);
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "lmdb DIRECTORY PROCESSES SECONDS\n");
        return 2;
    }
    unsigned processes = atoi(arguments[2]);
    double seconds = atof(arguments[3]);
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    for (unsigned i = 0; i < processes; i++) {
        if (fork() == 0) {
            work(arguments[1], board, processes, seconds);
            exit(0);
        }
    }
    int failed = 0;
    for (int status; wait(&status) > 0;) failed |= status;
    printf("%.0f ops/s\n", board->transactions / seconds);
    printf("%.2f us p50\n%.2f us p99\n%.2f us p999\n", quantile(board, 0.5), quantile(board, 0.99), quantile(board, 0.999));
    printf("%.2f us longest\n", board->longest_ns / 1e3);
    return failed != 0;
}
