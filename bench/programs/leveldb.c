// Threads on one LevelDB database with jemalloc as allocator: 9 reads to a write, each under the database's mutex.
// leveldb DIRECTORY THREADS SECONDS
#include <leveldb/c.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 100000, WRITES_IN = 10 };

static leveldb_t *db;
static double end;
static atomic_ulong operations;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(char *error) {
    if (error) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static void put(leveldb_writeoptions_t *how, unsigned number) {
    char key[16], value[100], *error = NULL;
    memset(value, 'x', sizeof value);
    snprintf(key, sizeof key, "%015u", number);
    leveldb_put(db, how, key, sizeof key, value, sizeof value, &error);
    check(error);
}

static void *work(void *number) {
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    unsigned random = (unsigned)(size_t)number;
    unsigned long done = 0;
    for (; now() < end; done++) {
        unsigned which = rand_r(&random) % KEYS;
        if (done % WRITES_IN == 0) {
            put(writes, which);
            continue;
        }
        char key[16], *error = NULL;
        size_t length = 0;
        snprintf(key, sizeof key, "%015u", which);
        char *value = leveldb_get(db, reads, key, sizeof key, &length, &error);
        check(error);
        if (!value || length != 100) check("a record that was written is not there");
        leveldb_free(value);
    }
    operations += done;
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "leveldb DIRECTORY THREADS SECONDS\n");
        return 2;
    }
    int threads = atoi(arguments[2]);
    double seconds = atof(arguments[3]);
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    char *error = NULL;
    db = leveldb_open(options, arguments[1], &error);
    check(error);
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    for (unsigned i = 0; i < KEYS; i++) put(writes, i);
    pthread_t all[threads];
    end = now() + seconds;
    for (size_t i = 0; i < (size_t)threads; i++) pthread_create(&all[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    leveldb_close(db);
    printf("%.0f ops/s\n", operations / seconds);
}
