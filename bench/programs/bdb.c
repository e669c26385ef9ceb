// Processes of several threads each on one Berkeley DB environment, whose mutexes lie in files that all map.
// bdb DIRECTORY PROCESSES THREADS SECONDS
#include <db.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 10000, WRITES_IN = 10 };

static DB_ENV *env;
static DB *db;
static double end;
static atomic_ulong *operations;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(int error, const char *what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, db_strerror(error));
        exit(1);
    }
}

static void join(const char *directory) {
    check(db_env_create(&env, 0), "db_env_create");
    check(env->set_lk_detect(env, DB_LOCK_DEFAULT), "set_lk_detect");
    check(env->set_cachesize(env, 0, 32 << 20, 1), "set_cachesize");
    // Not the disk is to be measured.
    check(env->set_flags(env, DB_TXN_NOSYNC, 1), "set_flags");
    check(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1), "log_set_config");
    u_int32_t flags = DB_CREATE | DB_THREAD | DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN;
    check(env->open(env, directory, flags, 0600), directory);
    check(db_create(&db, env, 0), "db_create");
    check(db->open(db, NULL, "t", NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0600), "open");
}

static void leave(void) {
    check(db->close(db, 0), "close");
    check(env->close(env, 0), "close of the environment");
}

static void *work(void *number) {
    unsigned random = (unsigned)(getpid() * 100 + (size_t)number), key;
    char text[100];
    memset(text, 'x', sizeof text);
    for (unsigned long done = 1; now() < end; done++) {
        DBT k = { .data = &key, .size = sizeof key };
        DBT v = { .data = text, .size = sizeof text, .ulen = sizeof text, .flags = DB_DBT_USERMEM };
        key = rand_r(&random) % KEYS;
        int error = done % WRITES_IN == 0 ? db->put(db, NULL, &k, &v, 0) : db->get(db, NULL, &k, &v, 0);
        // The victim of a deadlock tries again.
        if (error != DB_LOCK_DEADLOCK) {
            check(error == DB_NOTFOUND ? 0 : error, "operation");
            ++*operations;
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "bdb DIRECTORY PROCESSES THREADS SECONDS\n");
        return 2;
    }
    int processes = atoi(arguments[2]), threads = atoi(arguments[3]);
    double seconds = atof(arguments[4]);
    operations = mmap(NULL, sizeof *operations, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (operations == MAP_FAILED) return 1;
    // Made by a process of its own: handles do not live across a fork.
    if (fork() == 0) {
        join(arguments[1]);
        leave();
        return 0;
    }
    int status, failed = 0;
    if (wait(&status) < 0 || status != 0) return 1;
    end = now() + seconds;
    for (int i = 0; i < processes; i++) {
        if (fork() != 0) continue;
        join(arguments[1]);
        pthread_t ids[threads];
        for (int t = 0; t < threads; t++) check(pthread_create(&ids[t], NULL, work, (void *)(size_t)(t + 1)), "thread");
        for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
        leave();
        return 0;
    }
    while (wait(&status) > 0) failed |= status;
    printf("%.0f ops/s\n", *operations / seconds);
    return failed != 0;
}
