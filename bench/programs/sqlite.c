// Threads on one SQLite database: with a connection each (WAL), or all with one, which its recursive mutex serializes.
// sqlite FILE own|one THREADS SECONDS
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 10000, WRITES_IN = 10 };

static const char *file;
static sqlite3 *one;
static double end;
static atomic_ulong operations;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(int result, int expected, sqlite3 *db, const char *what) {
    if (result != expected) {
        fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db));
        exit(1);
    }
}

static void execute(sqlite3 *db, const char *sql) {
    check(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, db, sql);
}

static sqlite3 *open(void) {
    sqlite3 *db;
    check(sqlite3_open(file, &db), SQLITE_OK, db, file);
    check(sqlite3_busy_timeout(db, 60000), SQLITE_OK, db, "busy_timeout");
    execute(db, "PRAGMA journal_mode = WAL");
    // Not the disk is to be measured.
    execute(db, "PRAGMA synchronous = OFF");
    return db;
}

static void *work(void *number) {
    sqlite3 *db = one ? one : open();
    sqlite3_stmt *get, *put;
    check(sqlite3_prepare_v2(db, "SELECT v FROM t WHERE k = ?", -1, &get, NULL), SQLITE_OK, db, "prepare");
    check(sqlite3_prepare_v2(db, "UPDATE t SET v = v + 1 WHERE k = ?", -1, &put, NULL), SQLITE_OK, db, "prepare");
    unsigned random = (unsigned)(size_t)number;
    for (unsigned long done = 1; now() < end; done++) {
        sqlite3_stmt *statement = done % WRITES_IN == 0 ? put : get;
        sqlite3_bind_int(statement, 1, rand_r(&random) % KEYS);
        check(sqlite3_step(statement), statement == put ? SQLITE_DONE : SQLITE_ROW, db, "step");
        check(sqlite3_reset(statement), SQLITE_OK, db, "reset");
        operations++;
    }
    sqlite3_finalize(get);
    sqlite3_finalize(put);
    if (db != one) sqlite3_close(db);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "sqlite FILE own|one THREADS SECONDS\n");
        return 2;
    }
    file = arguments[1];
    int threads = atoi(arguments[3]);
    double seconds = atof(arguments[4]);
    sqlite3 *db = open();
    execute(db, "CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v INTEGER)");
    execute(db, "WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 9999) "
                "INSERT OR REPLACE INTO t SELECT k, 0 FROM n");
    if (strcmp(arguments[2], "one") == 0) one = db;
    end = now() + seconds;
    pthread_t ids[threads];
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, work, (void *)(size_t)(i + 1))) return 1;
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    sqlite3_close(db);
    printf("%.0f ops/s\n", operations / seconds);
    return 0;
}
