/* What comes late: handlers of exit and destructors of keys that still hold a mutex, a release under way when the last
 * user frees the mutex, a parent's session in a child. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OBJECTS = 20000, USERS = 3, SECTION_NS = 30000 };

struct data {
    volatile uint64_t begun, done;
};

static retrial_instance *instance;
static retrial_mutex *mutex;
static retrial_session *own;
static struct data *data;

static void finish(void) {
    usleep(200000);
    data->done++;
    OK(retrial_mutex_release(own, mutex));
}

/* A process calls exit while it holds the mutex: its handler goes on, and nobody has the mutex meanwhile. */
static void a_handler_of_exit_still_holds(void) {
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        OK(retrial_session_open(instance, "exits", &own));
        CHECK(atexit(finish) == 0);
        OK(retrial_mutex_get(own, mutex, RETRIAL_X, RETRIAL_HERE));
        data->begun++;
        CHECK(write(ready[1], &byte, 1) == 1);
        exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    OK(retrial_mutex_get(own, mutex, RETRIAL_X, RETRIAL_HERE));
    CHECK(data->begun == 1 && data->done == 1);
    OK(retrial_mutex_release(own, mutex));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void tidy(void *session) {
    OK(retrial_mutex_release(session, mutex));
    OK(retrial_session_close(session));
}

static void *hold(void *key) {
    retrial_session *session;
    OK(retrial_session_open(instance, "ends", &session));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    if (key) {
        CHECK(pthread_setspecific(*(pthread_key_t *)key, session) == 0);
    }
    return NULL;
}

static int got_after(void *key) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hold, key) == 0 && pthread_join(thread, NULL) == 0);
    return retrial_mutex_get(own, mutex, RETRIAL_X, RETRIAL_HERE);
}

static void a_destructor_of_a_key_releases(void) {
    pthread_key_t key;
    CHECK(pthread_key_create(&key, tidy) == 0);
    OK(got_after(&key));
    OK(retrial_mutex_release(own, mutex));
    ANSWERS(RETRIAL_OWNER_DIED, got_after(NULL));
    OK(retrial_mutex_consistent(own, mutex));
    OK(retrial_mutex_release(own, mutex));
}

static retrial_instance *other;
static retrial_session *left_open;

static void open_late(void *unused) {
    retrial_session *session;
    (void)unused;
    OK(retrial_session_open(other, "late", &session));
}

static void *leave_open(void *key) {
    OK(retrial_session_open(other, "left open", &left_open));
    CHECK(pthread_setspecific(*(pthread_key_t *)key, key) == 0);
    return NULL;
}

static void *use_anothers(void *unused) {
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_session_set_action(left_open, "another's"));
    return unused;
}

/* Both of the thread's sessions end with it, so that the next thread, which may have its memory, has none of them. */
static void a_destructor_of_a_key_opens_another_session(void) {
    pthread_key_t key;
    pthread_t thread;
    OK(retrial_instance_anonymous(NULL, &other));
    CHECK(pthread_key_create(&key, open_late) == 0);
    CHECK(pthread_create(&thread, NULL, leave_open, &key) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, use_anothers, NULL) == 0 && pthread_join(thread, NULL) == 0);
    OK(retrial_instance_close(other));
}

static void open_first(void *unused) {
    (void)unused;
    OK(retrial_session_open(other, "first", &left_open));
}

static void *open_none(void *key) {
    CHECK(pthread_setspecific(*(pthread_key_t *)key, key) == 0);
    return NULL;
}

/* A thread opens its first session when it has begun to end: the library does not see its end, but the next thread,
 * which may have its memory, has no session of it. */
static void a_destructor_of_a_key_opens_the_first_session(void) {
    pthread_key_t key;
    pthread_t thread;
    void *list = NULL;
    size_t size;
    if (syscall(SYS_get_robust_list, 0, &list, &size) != 0 || list == NULL) {
        puts("not tested: a thread's first session amid its end; there are no robust lists");
        return;
    }
    OK(retrial_instance_anonymous(NULL, &other));
    CHECK(pthread_key_create(&key, open_first) == 0);
    CHECK(pthread_create(&thread, NULL, open_none, &key) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, use_anothers, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* No key is left for the end of the thread: another program, since the library takes one with its first session. */
static void a_process_without_keys_is_told(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "ends", "without keys", NULL);
        _exit(errno == ENOEXEC ? 77 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        puts("not tested: a process without keys; programs of this machine cannot be executed");
        return;
    }
    CHECK(WEXITSTATUS(status) == 0);
}

static void take_all_keys(void) {
    pthread_key_t key;
    OK(retrial_instance_anonymous(NULL, &instance));
    while (pthread_key_create(&key, NULL) == 0) {
    }
    ANSWERS(RETRIAL_SYSTEM, retrial_session_open(instance, "without a key", &own));
    OK(pthread_key_delete(key));
    OK(retrial_session_open(instance, "with one", &own));
    OK(retrial_session_close(own));
    OK(retrial_instance_close(instance));
}

/* An object that goes with its last user. */
struct object {
    retrial_mutex mutex;
    int users;
};

static struct object *volatile objects[OBJECTS];
static pthread_barrier_t barrier;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *use(void *first) {
    retrial_session *session;
    OK(retrial_session_open(instance, "uses", &session));
    for (int i = 0; i < OBJECTS; i++) {
        if (first) {
            objects[i] = mmap(NULL, sizeof(struct object), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            CHECK(objects[i] != MAP_FAILED);
            objects[i]->users = USERS;
        }
        pthread_barrier_wait(&barrier);
        struct object *object = objects[i];
        OK(retrial_mutex_get(session, &object->mutex, RETRIAL_X, RETRIAL_HERE));
        for (uint64_t begin = now_ns(); now_ns() - begin < SECTION_NS;) {
        }
        int is_last = --object->users == 0;
        OK(retrial_mutex_release(session, &object->mutex));
        if (is_last) {
            OK(retrial_mutex_destroy(instance, &object->mutex));
            CHECK(munmap(object, sizeof *object) == 0);
        }
    }
    OK(retrial_session_close(session));
    return NULL;
}

static void the_last_user_frees(void) {
    pthread_t threads[USERS];
    CHECK(pthread_barrier_init(&barrier, NULL, USERS) == 0);
    for (int i = 0; i < USERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, use, i ? NULL : &barrier) == 0);
    }
    for (int i = 0; i < USERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void a_child_is_told_of_its_parents_session(void) {
    pid_t pid = fork();
    if (pid == 0) {
        ANSWERS(RETRIAL_FORKED, retrial_session_set_action(own, "of the child"));
        ANSWERS(RETRIAL_FORKED, retrial_mutex_get(own, mutex, RETRIAL_E, RETRIAL_HERE));
        /* It closes the instance when its own sessions are, and has its parent's all the same. */
        retrial_session *session;
        OK(retrial_session_open(instance, "of the child", &session));
        ANSWERS(RETRIAL_BUSY, retrial_instance_close(instance));
        OK(retrial_session_close(session));
        OK(retrial_instance_close(instance));
        ANSWERS(RETRIAL_GONE, retrial_instance_close(instance));
        retrial_mutex late = RETRIAL_MUTEX_INIT;
        ANSWERS(RETRIAL_FORKED, retrial_mutex_get(own, &late, RETRIAL_E, RETRIAL_HERE));
        ANSWERS(RETRIAL_FORKED, retrial_mutex_release(own, &late));
        OK(retrial_session_close(own));
        ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_session_close(own));
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static volatile int is_forking;

static void before_fork(void) {
    if (is_forking) {
        OK(retrial_mutex_get(own, mutex, RETRIAL_X, NULL));
    }
}

static void after_fork_in_parent(void) {
    if (is_forking) {
        usleep(100000); /* meanwhile the child releases, or tries to */
        CHECK(mutex->word == own->sid);
        OK(retrial_mutex_release(own, mutex));
    }
}

static void after_fork_in_child(void) {
    if (is_forking) {
        ANSWERS(RETRIAL_FORKED, retrial_mutex_release(own, mutex));
        ANSWERS(RETRIAL_FORKED, retrial_mutex_get(own, mutex, RETRIAL_X, NULL));
    }
}

__attribute__((constructor(101))) static void register_handlers(void) {
    CHECK(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
}

/* The usual handlers of fork, registered before anything else of the program runs: in them the child must not release
 * its parent's mutex. */
static void a_handler_of_fork_runs_after_the_librarys(void) {
    OK(retrial_mutex_get(own, mutex, RETRIAL_X, NULL));
    OK(retrial_mutex_release(own, mutex)); /* inlined from here on */
    is_forking = 1;
    pid_t pid = fork();
    is_forking = 0;
    if (pid == 0) {
        _exit(0);
    }
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

enum { OPENERS = 8, OPENED = 500 };

static uintptr_t opened[OPENERS][OPENED];

static void *open_often(void *mine) {
    for (int i = 0; i < OPENED; i++) {
        retrial_session *session;
        OK(retrial_session_open(instance, "opens", &session));
        ((uintptr_t *)mine)[i] = (uintptr_t)session;
        OK(retrial_session_close(session));
    }
    return NULL;
}

static int by_address(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Threads that open sessions at once use the memory of closed ones again. */
static void sessions_have_the_memory_of_closed_ones(void) {
    pthread_t threads[OPENERS];
    for (int i = 0; i < OPENERS; i++) CHECK(pthread_create(&threads[i], NULL, open_often, opened[i]) == 0);
    for (int i = 0; i < OPENERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    uintptr_t *all = opened[0];
    qsort(all, OPENERS * OPENED, sizeof *all, by_address);
    int different = 1;
    for (int i = 1; i < OPENERS * OPENED; i++) different += all[i] != all[i - 1];
    if (different > 4 * OPENERS) fprintf(stderr, "%d sessions of %d threads\n", different, OPENERS);
    CHECK(different <= 4 * OPENERS);
}

int main(int count, char **arguments) {
    void *at;
    (void)arguments;
    if (count > 1) {
        take_all_keys();
        return 0;
    }
    OK(retrial_instance_anonymous(NULL, &instance));
    OK(retrial_session_open(instance, "main", &own));
    OK(retrial_mutex_named(instance, "m", "test", sizeof *data, &mutex, &at));
    data = at;
    a_handler_of_exit_still_holds();
    a_destructor_of_a_key_releases();
    a_destructor_of_a_key_opens_another_session();
    a_destructor_of_a_key_opens_the_first_session();
    a_process_without_keys_is_told();
    sessions_have_the_memory_of_closed_ones();
    the_last_user_frees();
    a_handler_of_fork_runs_after_the_librarys();
    OK(retrial_mutex_get(own, mutex, RETRIAL_X, RETRIAL_HERE));
    a_child_is_told_of_its_parents_session();
    OK(retrial_mutex_release(own, mutex));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_destroy(instance, mutex));
    OK(retrial_session_close(own));
    return 0;
}
