/* Everything that C can get wrong and the library can notice: a code, a message, and no harm. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static retrial_instance *instance;
static retrial_session *session;
static retrial_mutex *mutex;

static int in_thread_with(void *(*run)(void *), void *argument) {
    pthread_t thread;
    void *failed;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0 && pthread_join(thread, &failed) == 0);
    return failed == NULL;
}

static int in_thread(void *(*run)(void *)) { return in_thread_with(run, NULL); }

static void nulls(void) {
    retrial_session *to;
    ANSWERS(RETRIAL_INVALID, retrial_instance_open(NULL, NULL, 0600, &instance));
    CHECK(strcmp(retrial_message(), "argument `address` is NULL, expected a string") == 0);
    ANSWERS(RETRIAL_INVALID, retrial_instance_open("n", NULL, 0600, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_instance_anonymous(NULL, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_instance_close(NULL));
    ANSWERS(RETRIAL_INVALID, retrial_session_open(NULL, "s", &to));
    ANSWERS(RETRIAL_INVALID, retrial_session_open(instance, "s", NULL));
    ANSWERS(RETRIAL_INVALID, retrial_session_close(NULL));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_named(instance, NULL, "t", 8, &mutex, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_named(instance, "m", "t", 8, NULL, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(NULL, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(session, NULL, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release(session, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_init(instance, NULL, "t", NULL));
    ANSWERS(RETRIAL_INVALID, retrial_param_set(instance, NULL, NULL, "1"));
    ANSWERS(RETRIAL_INVALID, retrial_param_get(instance, NULL, "mutex_spin_count", NULL, 8));
}

static void values(void) {
    char text[3];
    retrial_instance *to;
    retrial_location nameless = {NULL, 0};
    const retrial_capacity much = {.sessions = UINT32_MAX};
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(session, mutex, 4, RETRIAL_HERE));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(session, mutex, -1, RETRIAL_HERE));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(session, mutex, RETRIAL_X, &nameless));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_get(session, (retrial_mutex *)((char *)mutex + 4), RETRIAL_X, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_instance_open("x y", NULL, 0600, &to));
    ANSWERS(RETRIAL_INVALID, retrial_instance_open(".hidden", NULL, 0600, &to));
    ANSWERS(RETRIAL_INVALID, retrial_instance_open("\xff", NULL, 0600, &to));
    ANSWERS(RETRIAL_INVALID, retrial_instance_anonymous(&much, &to));
    ANSWERS(RETRIAL_NOT_FOUND, retrial_instance_attach("retrial-c-no-such-instance", &to));
    ANSWERS(RETRIAL_FORMAT, retrial_instance_anonymous_abi(RETRIAL_ABI + 1, NULL, &to));
    ANSWERS(RETRIAL_NOT_FOUND, retrial_param_set(instance, NULL, "mutex_spin_cout", "1"));
    CHECK(strstr(retrial_message(), "mutex_spin_count"));
    ANSWERS(RETRIAL_NOT_FOUND, retrial_param_set(instance, "no such type", "mutex_spin_count", "1"));
    ANSWERS(RETRIAL_INVALID, retrial_param_set(instance, NULL, "mutex_spin_count", "1s"));
    ANSWERS(RETRIAL_INVALID, retrial_param_get(instance, NULL, "mutex_spin_count", text, sizeof text));
    ANSWERS(RETRIAL_SHAPE, retrial_mutex_named(instance, "m", "t", 80, &mutex, NULL));
    ANSWERS(RETRIAL_SHAPE, retrial_mutex_named(instance, "m", "t", 7, &mutex, NULL));
    CHECK(strstr(retrial_message(), "has 8 bytes, expected 7"));
    ANSWERS(RETRIAL_FULL, retrial_mutex_named(instance, "large", "t", SIZE_MAX, &mutex, NULL));
    CHECK(strstr(retrial_message(), "too large"));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_named(instance, "", "t", 8, &mutex, NULL));
    CHECK(strcmp(retrial_strerror(12345), "no code of retrial") == 0);
}

static void *with_a_foreign_session(void *unused) {
#ifdef RETRIAL_DEBUG /* the inlined ones do not look at the thread */
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_release(session, mutex));
#endif
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_get(session, mutex, RETRIAL_S, RETRIAL_HERE));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_get_call(session, mutex, RETRIAL_X, RETRIAL_NOW, NULL));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_release_call(session, mutex));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_session_close(session));
    return unused;
}

static void *releases_what_another_holds(void *unused) {
    retrial_session *own;
    OK(retrial_session_open(instance, "thread", &own));
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(own, mutex));
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_consistent(own, mutex));
    ANSWERS(RETRIAL_BUSY, retrial_mutex_try(own, mutex, RETRIAL_S, RETRIAL_HERE));
    return unused; /* the session ends with the thread */
}

/* The end of a release that was not begun. */
static void ends(void) {
    retrial_mutex fresh = RETRIAL_MUTEX_INIT;
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release_end(NULL, mutex));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release_end(session, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release_end(session, &fresh));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release_end(session, mutex));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_release_end(session, mutex));
    OK(retrial_mutex_release(session, mutex));
}

static void holds(void) {
    retrial_mutex fresh = RETRIAL_MUTEX_INIT, zero = RETRIAL_MUTEX_INIT;
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, &fresh));
    CHECK(memcmp(&fresh, &zero, sizeof zero) == 0);
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, mutex));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_DEADLOCK, retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_DEADLOCK, retrial_mutex_get(session, mutex, RETRIAL_S, RETRIAL_HERE));
    ANSWERS(RETRIAL_WRONG_MODE, retrial_mutex_examine(session, mutex, RETRIAL_NOW));
    ANSWERS(RETRIAL_WRONG_MODE, retrial_mutex_upgrade(session, mutex, RETRIAL_NOW));
    ANSWERS(RETRIAL_BUSY, retrial_session_close(session));
    CHECK(in_thread(with_a_foreign_session) && in_thread(releases_what_another_holds));
    OK(retrial_mutex_release(session, mutex));
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, mutex));
    OK(retrial_mutex_get(session, mutex, RETRIAL_S, RETRIAL_HERE));
    ANSWERS(RETRIAL_WRONG_MODE, retrial_mutex_share(session, mutex));
    ANSWERS(RETRIAL_WRONG_MODE, retrial_mutex_consistent(session, mutex));
    OK(retrial_mutex_release(session, mutex));
}

static void too_many(void) {
    static retrial_mutex many[257];
    for (int i = 0; i < 256; i++) {
        OK(retrial_mutex_get(session, &many[i], RETRIAL_X, RETRIAL_HERE));
    }
    ANSWERS(RETRIAL_LOG_FULL, retrial_mutex_get(session, &many[256], RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_BUSY, retrial_mutex_destroy(instance, &many[7]));
    for (int i = 0; i < 256; i++) {
        OK(retrial_mutex_release(session, &many[i]));
        OK(retrial_mutex_destroy(instance, &many[i]));
    }
    ANSWERS(RETRIAL_GONE, retrial_mutex_get(session, &many[0], RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_GONE, retrial_mutex_release(session, &many[0]));
    OK(retrial_mutex_init(instance, &many[0], "t", "again"));
    OK(retrial_mutex_get(session, &many[0], RETRIAL_X, RETRIAL_HERE));
    OK(retrial_mutex_release(session, &many[0]));
}

/* A mutex of another instance with the number of a mutex of this one, and a session with this one's number. */
static void same_numbers(retrial_instance *theirs, retrial_session *foreign) {
    retrial_mutex twin = RETRIAL_MUTEX_INIT;
    retrial_location *here = RETRIAL_HERE;
    OK(retrial_mutex_get(foreign, &twin, RETRIAL_X, here));
    CHECK(twin.id == mutex->id && foreign->sid == session->sid);
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_mutex_release(foreign, mutex));
    OK(retrial_mutex_release(foreign, &twin));
    OK(retrial_mutex_release(session, mutex));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_mutex_get(foreign, mutex, RETRIAL_X, here));
    OK(retrial_mutex_destroy(theirs, &twin));
}

static void other_instance(void) {
    retrial_instance *theirs;
    retrial_session *foreign;
    retrial_mutex own = RETRIAL_MUTEX_INIT;
    OK(retrial_instance_anonymous(NULL, &theirs));
    OK(retrial_session_open(theirs, NULL, &foreign));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_mutex_get(foreign, mutex, RETRIAL_X, RETRIAL_HERE));
    OK(retrial_mutex_get(session, &own, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_mutex_release(foreign, &own));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_mutex_destroy(theirs, &own));
    OK(retrial_mutex_release(session, &own));
    OK(retrial_mutex_destroy(instance, &own));
    same_numbers(theirs, foreign);
    ANSWERS(RETRIAL_BUSY, retrial_instance_close(theirs));
    OK(retrial_session_close(foreign));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_session_close(foreign));
    OK(retrial_instance_close(theirs));
    ANSWERS(RETRIAL_GONE, retrial_instance_close(theirs));
    ANSWERS(RETRIAL_GONE, retrial_session_open(theirs, NULL, &foreign));
}

static volatile int is_held, answer_in_handler;

static void in_handler(int signal) {
    (void)signal;
    /* Between two calls the session may be used: there is nothing to be seen then. */
    if (retrial_mutex_release(session, mutex) == RETRIAL_REENTERED) {
        answer_in_handler = retrial_mutex_get(session, mutex, RETRIAL_S, NULL);
    }
}

/* Holds the mutex until the waiter has been interrupted in its get. */
static void *holds_and_signals(void *waiter) {
    retrial_session *own;
    OK(retrial_session_open(instance, "holder", &own));
    OK(retrial_mutex_get(own, mutex, RETRIAL_X, RETRIAL_HERE));
    is_held = 1;
    while (answer_in_handler == 0) {
        pthread_kill(*(pthread_t *)waiter, SIGUSR1);
        usleep(1000);
    }
    OK(retrial_mutex_release(own, mutex));
    return NULL;
}

static void signals(void) {
    pthread_t self = pthread_self(), holder;
    struct sigaction action = {.sa_handler = in_handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&holder, NULL, holds_and_signals, &self) == 0);
    while (!is_held) {
        usleep(100);
    }
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    CHECK(answer_in_handler == RETRIAL_REENTERED);
    CHECK(pthread_join(holder, NULL) == 0);
    OK(retrial_mutex_release(session, mutex));
}

/* A thread of the child, which has the parent's session: not even by an inlined call. */
static void *with_the_parents(void *at) {
    retrial_session *parents = at;
    const uint64_t before = *parents->log;
    CHECK(retrial_mutex_get(parents, mutex, RETRIAL_X, NULL) != RETRIAL_OK);
    CHECK(retrial_mutex_release(parents, mutex) != RETRIAL_OK);
    CHECK(*parents->log == before); /* it is shared with the parent */
    return NULL;
}

static void forked(void) {
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    pid_t child = fork();
    if (child == 0) {
        retrial_session *own;
        retrial_mutex local = RETRIAL_MUTEX_INIT;
        ANSWERS(RETRIAL_FORKED, retrial_mutex_release(session, mutex));
        ANSWERS(RETRIAL_FORKED, retrial_mutex_get(session, &local, RETRIAL_X, RETRIAL_HERE));
        CHECK(in_thread_with(with_the_parents, session));
        OK(retrial_session_close(session));
        OK(retrial_session_open(instance, "child", &own));
        ANSWERS(RETRIAL_BUSY, retrial_mutex_try(own, mutex, RETRIAL_X, RETRIAL_HERE));
        exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(retrial_mutex_release(session, mutex));
}

/* After a call has changed how a mutex is held, its release is no inlined one. */
static void held_another_way(void) {
    retrial_session *other;
    OK(retrial_session_open(instance, "other", &other));
    /* S beside another reader: an inlined release would take that one's reference too. */
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
    OK(retrial_mutex_share(session, mutex));
    OK(retrial_mutex_get(other, mutex, RETRIAL_S, NULL));
    OK(retrial_mutex_release(session, mutex));
    CHECK(mutex->word == 1);
    OK(retrial_mutex_release(other, mutex));
    /* Given back by a call, and another session's by then. */
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
    OK(retrial_mutex_release_call(session, mutex));
    OK(retrial_mutex_get(other, mutex, RETRIAL_X, NULL));
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, mutex));
    CHECK(mutex->word == other->sid);
    OK(retrial_mutex_release(other, mutex));
    /* One mutex at two addresses. */
    int file = memfd_create("mutex", 0);
    CHECK(file >= 0 && ftruncate(file, sizeof(retrial_mutex)) == 0);
    retrial_mutex *at[2];
    for (int i = 0; i < 2; i++) {
        at[i] = mmap(NULL, sizeof(retrial_mutex), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(at[i] != MAP_FAILED);
    }
    for (int round = 0; round < 2; round++) {
        OK(retrial_mutex_get(session, at[0], RETRIAL_X, NULL));
        OK(retrial_mutex_release(session, at[1]));
        OK(retrial_mutex_get(other, at[1], RETRIAL_X, NULL));
        ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, at[0]));
        OK(retrial_mutex_release(other, at[0]));
    }
    /* Another mutex where the first one was got, which is held by its other address. */
    int next = memfd_create("next", 0);
    CHECK(next >= 0 && ftruncate(next, sizeof(retrial_mutex)) == 0);
    for (int mode = RETRIAL_S; mode <= RETRIAL_X; mode++) {
        OK(retrial_mutex_get(session, at[0], RETRIAL_X, NULL));
        CHECK(mmap(at[0], sizeof *at[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, next, 0) == at[0]);
        if (mode == RETRIAL_S) {
            OK(retrial_mutex_get(other, at[0], RETRIAL_S, NULL));
        }
        OK(retrial_mutex_get(session, at[0], mode, NULL));
        OK(retrial_mutex_release(session, at[0]));
        CHECK(at[0]->word == (mode == RETRIAL_S ? 1 : 0) && at[1]->word == session->sid);
        if (mode == RETRIAL_S) {
            OK(retrial_mutex_release(other, at[0]));
        }
        OK(retrial_mutex_release(session, at[1]));
        CHECK(mmap(at[0], sizeof *at[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at[0]);
    }
    CHECK(close(next) == 0);
    OK(retrial_mutex_destroy(instance, at[0]));
    CHECK(close(file) == 0 && munmap(at[0], sizeof *at[0]) == 0 && munmap(at[1], sizeof *at[1]) == 0);
    /* A mutex held beside it, released first. */
    retrial_mutex own = RETRIAL_MUTEX_INIT;
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
    OK(retrial_mutex_get(session, &own, RETRIAL_X, NULL));
    OK(retrial_mutex_release(session, &own));
    CHECK(mutex->word == session->sid);
    OK(retrial_mutex_release(session, mutex));
    ANSWERS(RETRIAL_NOT_HELD, retrial_mutex_release(session, mutex));
    OK(retrial_mutex_destroy(instance, &own));
    OK(retrial_session_close(other));
}

/* What a child answers when it gets a mutex that its parent has got, and released. */
static int got_in_child(retrial_mutex *parents) {
    OK(retrial_mutex_get(session, parents, RETRIAL_X, NULL));
    OK(retrial_mutex_release(session, parents));
    pid_t child = fork();
    if (child == 0) {
        retrial_session *own;
        OK(retrial_session_open(instance, "child", &own));
        for (int round = 0; round < 2; round++) {
            int answer = retrial_mutex_get(own, parents, RETRIAL_X, RETRIAL_HERE);
            if (answer != RETRIAL_OK) {
                CHECK(strstr(retrial_message(), "private memory of this process"));
                _exit(-answer);
            }
            OK(retrial_mutex_release(own, parents));
        }
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return -WEXITSTATUS(status);
}

/* The child has a copy of what is in private memory. */
static void in_private_memory(void) {
    static retrial_mutex copied;
    retrial_mutex *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    OK(got_in_child(shared));
    OK(got_in_child(mutex));
#ifdef RETRIAL_DEBUG
    ANSWERS(RETRIAL_INVALID, got_in_child(&copied));
#else
    OK(got_in_child(&copied));
    ANSWERS(RETRIAL_OK, retrial_mutex_check(session, &copied));
#endif
    OK(retrial_mutex_destroy(instance, &copied));
    OK(retrial_mutex_destroy(instance, shared));
    CHECK(munmap(shared, sizeof *shared) == 0);
}

/* A child is told also where it does not hold what it gets, and the parent goes on with inlined calls. */
static void forked_between(void) {
    for (int round = 0; round < 2; round++) {
        OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
        OK(retrial_mutex_release(session, mutex));
        pid_t child = fork();
        if (child == 0) {
            ANSWERS(RETRIAL_FORKED, retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
            CHECK(mutex->word == 0 && *session->log == 0);
            exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(session->instance == mutex->instance);
}

int main(void) {
    OK(retrial_instance_anonymous(NULL, &instance));
    OK(retrial_session_open(instance, "main", &session));
    OK(retrial_mutex_named(instance, "m", "t", 8, &mutex, NULL));
    nulls();
    values();
    ends();
    holds();
    too_many();
    other_instance();
    signals();
    forked();
    forked_between();
    held_another_way();
    in_private_memory();
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, NULL)); /* its place is resolved: inlined from here on */
    OK(retrial_mutex_release(session, mutex));
    OK(retrial_session_close(session));
    retrial_mutex fresh = RETRIAL_MUTEX_INIT;
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_get(session, mutex, RETRIAL_X, NULL));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_get(session, &fresh, RETRIAL_X, NULL));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_release(session, mutex));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_mutex_release(session, &fresh));
    OK(retrial_instance_close(instance));
    return 0;
}
