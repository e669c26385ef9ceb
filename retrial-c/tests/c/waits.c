/* Waits for conditions: signalled, timed out, told of a death, refused. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <retrial_cond.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
    retrial_mutex mutex;
    retrial_cond cond;
    int waiting, tokens;
} *shared;
static retrial_instance *instance;
static retrial_session *session;

static void get(retrial_session *by) { OK(retrial_mutex_get(by, &shared->mutex, RETRIAL_X, RETRIAL_HERE)); }

static void release(retrial_session *by) { OK(retrial_mutex_release(by, &shared->mutex)); }

/* Takes a token, by a session of this process or thread. */
static void takes(void) {
    retrial_session *own;
    OK(retrial_session_open(instance, "takes", &own));
    get(own);
    shared->waiting++;
    while (shared->tokens == 0) {
        OK(retrial_cond_wait_until(own, &shared->cond, &shared->mutex, retrial_deadline_ns(20000000000u)));
    }
    shared->tokens--;
    release(own);
    OK(retrial_session_close(own));
}

static pid_t forks(void (*deed)(void)) {
    const pid_t child = fork();
    if (child == 0) {
        deed();
        _exit(0);
    }
    CHECK(child > 0);
    return child;
}

static void ends_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Returns with the mutex held, when so many have come to wait. */
static void until_waiting(int count) {
    for (get(session); shared->waiting != count; get(session)) {
        release(session);
        usleep(1000);
    }
    shared->waiting = 0;
}

static void signalled(void) {
    pid_t takers[3];
    for (int i = 0; i < 3; i++) {
        takers[i] = forks(takes);
    }
    until_waiting(3);
    shared->tokens = 1;
    OK(retrial_cond_signal(session, &shared->cond));
    release(session);
    /* One has it: whichever is gone next. */
    int status;
    const pid_t first = wait(&status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    get(session);
    CHECK(shared->tokens == 0);
    shared->tokens = 2;
    OK(retrial_cond_broadcast(session, &shared->cond));
    release(session);
    for (int i = 0; i < 3; i++) {
        if (takers[i] != first) {
            ends_well(takers[i]);
        }
    }
}

static void at_the_deadline(void) {
    get(session);
    ANSWERS(RETRIAL_TIMED_OUT,
            retrial_cond_wait_until(session, &shared->cond, &shared->mutex, retrial_deadline_ns(2000000)));
    CHECK(strstr(retrial_message(), "the mutex is held"));
    ANSWERS(RETRIAL_TIMED_OUT, retrial_cond_wait_until(session, &shared->cond, &shared->mutex, RETRIAL_NOW));
    release(session);
}

static void waits_for_the_dead(void) {
    retrial_session *own;
    OK(retrial_session_open(instance, "waits", &own));
    get(own);
    shared->waiting++;
    ANSWERS(RETRIAL_OWNER_DIED, retrial_cond_wait(own, &shared->cond, &shared->mutex));
    OK(retrial_mutex_consistent(own, &shared->mutex));
    release(own);
}

static void killed_holder(void) {
    const pid_t waiter = forks(waits_for_the_dead);
    until_waiting(1);
    release(session);
    const pid_t holder = fork();
    if (holder == 0) {
        retrial_session *own;
        OK(retrial_session_open(instance, "dies", &own));
        get(own);
        shared->tokens = 1; /* and no signal */
        kill(getpid(), SIGKILL);
    }
    int status;
    CHECK(waitpid(holder, &status, 0) == holder && WIFSIGNALED(status));
    ends_well(waiter);
    shared->tokens = 0;
}

static void *of_a_thread(void *unused) {
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_cond_wait(session, &shared->cond, &shared->mutex));
    ANSWERS(RETRIAL_NOT_MY_SESSION, retrial_cond_signal(session, &shared->cond));
    return unused;
}

static void in_a_child(void) {
    ANSWERS(RETRIAL_FORKED, retrial_cond_wait(session, &shared->cond, &shared->mutex));
    ANSWERS(RETRIAL_FORKED, retrial_cond_signal(session, &shared->cond));
    ANSWERS(RETRIAL_FORKED, retrial_cond_broadcast(session, &shared->cond));
}

static void refused(void) {
    retrial_cond *cond = &shared->cond, *to, fresh = RETRIAL_COND_INIT, zero = RETRIAL_COND_INIT;
    retrial_mutex *mutex = &shared->mutex, *named;
    ANSWERS(RETRIAL_INVALID, retrial_cond_wait(NULL, cond, mutex));
    ANSWERS(RETRIAL_INVALID, retrial_cond_wait(session, NULL, mutex));
    CHECK(strcmp(retrial_message(), "argument `condition` is NULL, expected a condition") == 0);
    ANSWERS(RETRIAL_INVALID, retrial_cond_wait(session, cond, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_wait(session, (retrial_cond *)((char *)cond + 4), mutex));
    ANSWERS(RETRIAL_INVALID, retrial_cond_signal(NULL, cond));
    ANSWERS(RETRIAL_INVALID, retrial_cond_signal(session, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_broadcast(session, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_init(NULL, cond, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_init(instance, NULL, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_init(instance, &fresh, "\xff"));
    ANSWERS(RETRIAL_INVALID, retrial_cond_destroy(instance, NULL));
    ANSWERS(RETRIAL_INVALID, retrial_cond_named(instance, NULL, &to));
    ANSWERS(RETRIAL_INVALID, retrial_cond_named(instance, "c", NULL));
    /* What the session does not hold, or not alone: and a fresh condition stays as it is. */
    ANSWERS(RETRIAL_NOT_HELD, retrial_cond_wait(session, &fresh, mutex));
    OK(retrial_mutex_get(session, mutex, RETRIAL_S, RETRIAL_HERE));
    ANSWERS(RETRIAL_WRONG_MODE, retrial_cond_wait(session, &fresh, mutex));
    release(session);
    CHECK(memcmp(&fresh, &zero, sizeof zero) == 0);
    /* Names are of one or the other. */
    OK(retrial_cond_named(instance, "c", &to));
    ANSWERS(RETRIAL_INVALID, retrial_cond_destroy(instance, to));
    OK(retrial_mutex_named(instance, "m", "t", 8, &named, NULL));
    ANSWERS(RETRIAL_SHAPE, retrial_cond_named(instance, "m", &to));
    ANSWERS(RETRIAL_SHAPE, retrial_mutex_named(instance, "c", "t", 8, &named, NULL));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, of_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    ends_well(forks(in_a_child));
}

static void of_another_instance(void) {
    retrial_instance *theirs;
    retrial_session *foreign;
    retrial_mutex own = RETRIAL_MUTEX_INIT;
    OK(retrial_instance_anonymous(NULL, &theirs));
    OK(retrial_session_open(theirs, NULL, &foreign));
    OK(retrial_mutex_get(foreign, &own, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_cond_wait(foreign, &shared->cond, &own));
    OK(retrial_mutex_release(foreign, &own)); /* held as before */
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_cond_wait(foreign, &shared->cond, &shared->mutex));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_cond_signal(foreign, &shared->cond));
    ANSWERS(RETRIAL_OTHER_INSTANCE, retrial_cond_destroy(theirs, &shared->cond));
    OK(retrial_session_close(foreign));
    OK(retrial_instance_close(theirs));
}

static void destroyed(void) {
    const pid_t taker = forks(takes);
    until_waiting(1);
    ANSWERS(RETRIAL_BUSY, retrial_cond_destroy(instance, &shared->cond));
    shared->tokens = 1;
    OK(retrial_cond_signal(session, &shared->cond));
    release(session);
    ends_well(taker);
    OK(retrial_cond_destroy(instance, &shared->cond));
    ANSWERS(RETRIAL_GONE, retrial_cond_destroy(instance, &shared->cond));
    ANSWERS(RETRIAL_GONE, retrial_cond_signal(session, &shared->cond));
    get(session);
    ANSWERS(RETRIAL_GONE, retrial_cond_wait(session, &shared->cond, &shared->mutex));
    OK(retrial_cond_init(instance, &shared->cond, "again"));
    ANSWERS(RETRIAL_TIMED_OUT, retrial_cond_wait_until(session, &shared->cond, &shared->mutex, RETRIAL_NOW));
    release(session);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    OK(retrial_instance_anonymous(NULL, &instance));
    OK(retrial_session_open(instance, "main", &session));
    signalled();
    at_the_deadline();
    killed_holder();
    refused();
    of_another_instance();
    destroyed();
    OK(retrial_session_close(session));
    return 0;
}
