/* SQLite on retrial mutexes: its mutex methods (SQLITE_CONFIG_MUTEX), and threads that write by a connection.
 *
 *   cc -std=c11 -pthread sqlite.c $(pkg-config --cflags --libs retrial sqlite3) -o sqlite
 *   ./sqlite INSTANCE DATABASE       a name under /dev/shm, or a path; a file, or :memory:
 *
 * When the rows are written it waits for Enter, so that SQLite's mutexes can be looked at:
 * retrial show -i INSTANCE mutexes */
#define _GNU_SOURCE
#include <pthread.h>
#include <retrial.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROWS = 500, FIRST_STATIC = SQLITE_MUTEX_STATIC_MAIN };

/* What SQLite's pointers point at, in the process's own memory: its mutexes are for the threads of a process. */
struct sqlite3_mutex {
    retrial_mutex mutex;
    retrial_session *owner; /* written while the mutex is held */
    int depth;              /* gets of a recursive mutex by its owner */
};

/* In the order of SQLite's numbers. */
static const char *const static_names[] = {"main",          "memory",        "open",          "random numbers",
                                           "page cache",    "page memory",   "application 1", "application 2",
                                           "application 3", "files 1",       "files 2",       "files 3"};
enum { STATICS = sizeof static_names / sizeof *static_names };

static const char *address;
static retrial_instance *instance;
static struct sqlite3_mutex statics[STATICS];
static _Thread_local retrial_session *of_this_thread; /* ends with the thread */

static void check(int answer) {
    if (answer != RETRIAL_OK) {
        fprintf(stderr, "%s: %s\n", retrial_strerror(answer), retrial_message());
        abort();
    }
}

static retrial_session *session(void) {
    if (of_this_thread == NULL) {
        check(retrial_session_open(instance, "SQLite", &of_this_thread));
    }
    return of_this_thread;
}

static int begin(void) {
    if (instance != NULL) {
        return SQLITE_OK;
    }
    if (retrial_instance_open(address, NULL, 0600, &instance) != RETRIAL_OK) {
        fprintf(stderr, "%s\n", retrial_message());
        return SQLITE_ERROR;
    }
    for (int i = 0; i < STATICS; i++) {
        check(retrial_mutex_init(instance, &statics[i].mutex, "SQLite static", static_names[i]));
    }
    return SQLITE_OK;
}

/* The threads that used SQLite have ended, but for this one. */
static int end(void) {
    for (int i = 0; i < STATICS; i++) {
        check(retrial_mutex_destroy(instance, &statics[i].mutex));
    }
    if (of_this_thread != NULL) {
        check(retrial_session_close(of_this_thread));
        of_this_thread = NULL;
    }
    check(retrial_instance_close(instance));
    instance = NULL;
    return SQLITE_OK;
}

static sqlite3_mutex *alloc(int kind) {
    if (kind >= FIRST_STATIC) {
        return kind < FIRST_STATIC + STATICS ? &statics[kind - FIRST_STATIC] : NULL;
    }
    sqlite3_mutex *made = calloc(1, sizeof *made);
    if (made != NULL) {
        check(retrial_mutex_init(instance, &made->mutex, kind == SQLITE_MUTEX_RECURSIVE ? "SQLite recursive" : "SQLite",
                                 NULL));
    }
    return made;
}

static void dispose(sqlite3_mutex *mutex) {
    check(retrial_mutex_destroy(instance, &mutex->mutex));
    free(mutex);
}

/* Only this thread stores its session there. */
static int is_held(sqlite3_mutex *mutex) {
    return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == session();
}

static int is_not_held(sqlite3_mutex *mutex) {
    return !is_held(mutex);
}

static int get(sqlite3_mutex *mutex, uint64_t deadline_ns) {
    if (!is_held(mutex)) {
        int answer = retrial_mutex_get_until(session(), &mutex->mutex, RETRIAL_X, deadline_ns, RETRIAL_HERE);
        if (answer == RETRIAL_BUSY) {
            return SQLITE_BUSY;
        }
        check(answer);
        __atomic_store_n(&mutex->owner, session(), __ATOMIC_RELAXED);
    }
    mutex->depth++;
    return SQLITE_OK;
}

static void enter(sqlite3_mutex *mutex) {
    get(mutex, RETRIAL_FOREVER);
}

static int try_enter(sqlite3_mutex *mutex) {
    return get(mutex, RETRIAL_NOW);
}

static void leave(sqlite3_mutex *mutex) {
    if (--mutex->depth == 0) {
        __atomic_store_n(&mutex->owner, NULL, __ATOMIC_RELAXED);
        check(retrial_mutex_release(session(), &mutex->mutex));
    }
}

static const sqlite3_mutex_methods methods = {begin, end, alloc, dispose, enter, try_enter, leave, is_held, is_not_held};

static void sql(sqlite3 *database, const char *text) {
    char *error;
    if (sqlite3_exec(database, text, NULL, NULL, &error) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", text, error);
        exit(1);
    }
}

static void *writes(void *database) {
    for (int row = 0; row < ROWS; row++) {
        sql(database, "UPDATE count SET rows = rows + 1; INSERT INTO log SELECT rows FROM count");
    }
    return NULL;
}

static int print(void *unused, int columns, char **values, char **names) {
    (void)unused, (void)columns, (void)names;
    printf("%s rows, %s of them different, %s counted\n", values[0], values[1], values[2]);
    return fflush(stdout);
}

int main(int argc, char **argv) {
    sqlite3 *database;
    pthread_t threads[THREADS];
    if (argc != 3) {
        fprintf(stderr, "usage: sqlite INSTANCE DATABASE\n");
        return 2;
    }
    address = argv[1];
    if (sqlite3_config(SQLITE_CONFIG_MUTEX, &methods) != SQLITE_OK || sqlite3_open(argv[2], &database) != SQLITE_OK) {
        fprintf(stderr, "SQLite: not opened with these mutexes\n");
        return 1;
    }
    sql(database, "CREATE TABLE log (entry); CREATE TABLE count (rows); INSERT INTO count VALUES (0)");
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, writes, database) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    sqlite3_exec(database, "SELECT count(*), count(DISTINCT entry), rows FROM log, count", print, NULL, NULL);
    getchar();
    return sqlite3_close(database) != SQLITE_OK || sqlite3_shutdown() != SQLITE_OK;
}
