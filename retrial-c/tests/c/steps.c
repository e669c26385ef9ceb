/* A process is stepped instruction by instruction through a get of X, a count and a release, and killed after the n-th
 * step, for each n. The next session is told of the death exactly if the word was the dead one's then, and the count is
 * whole otherwise. Prints how many kills there were, and how many of them before the get, with the mutex, and after the
 * release. Then the same without a kill, but with a session that parks after the n-th step: the release wakes.
 * The argument is the instance's path. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* The data of the mutex. */
struct shared {
    volatile int at; /* 1: begins, 2: has released */
    volatile uint64_t begun, done;
};

static const char *address;
static retrial_mutex *mutex;
static struct shared *shared;

static void find(retrial_instance *instance) {
    void *data;
    OK(retrial_mutex_named(instance, "stepped", "test", sizeof *shared, &mutex, &data));
    shared = data;
}

/* Opens its own instance and session, and stops before it begins. */
static void victim(void) {
    retrial_instance *instance;
    retrial_session *session;
    OK(retrial_instance_attach(address, &instance));
    find(instance);
    OK(retrial_session_open(instance, "victim", &session));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    retrial_location *here = RETRIAL_HERE;
    for (int round = 0; round < 2; round++) {
        if (round == 1) { /* the place is resolved by now */
            raise(SIGSTOP);
            shared->at = 1;
        }
        int answer = retrial_mutex_get(session, mutex, RETRIAL_X, here);
        shared->begun++;
        shared->done++;
        answer |= retrial_mutex_release(session, mutex);
        shared->at = round * 2;
        OK(answer);
    }
    raise(SIGSTOP);
    /* Whatever happened, the session is as usual. */
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, here));
    OK(retrial_mutex_release(session, mutex));
    OK(retrial_session_close(session));
    exit(0);
}

static void wait_for_stop(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSTOPPED(status));
}

/* A child, stopped after so many steps behind the begin. */
static pid_t stepped(int steps) {
    shared->at = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        victim();
    }
    wait_for_stop(child);
    for (int step = 0; shared->at < 1 || (step < steps && shared->at < 2); step += shared->at == 1) {
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
        wait_for_stop(child);
    }
    return child;
}

/* Kills one. Whether it had not released and returned before. */
static int kill_after(int steps) {
    int status;
    pid_t child = stepped(steps);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return shared->at < 2;
}

enum { BEFORE, HOLDING, AFTER, STATES };

/* Where the child has come to. */
static int state(void) {
    return mutex->word != 0 ? HOLDING : shared->done == 1 ? BEFORE : AFTER; /* the first round was not stepped */
}

/* A session parks then, or so it seems: the release wakes it unless it was over. Whether it was under way. */
static int park_after(int steps) {
    int status;
    pid_t child = stepped(steps);
    const int is_under_way = shared->at < 2, is_over = state() == AFTER;
    const uint32_t wakes = mutex->wakes;
    __atomic_fetch_add(&mutex->parking, 1, __ATOMIC_SEQ_CST);
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
    wait_for_stop(child);
    CHECK(mutex->word == 0 && (is_over || mutex->wakes != wakes));
    CHECK(ptrace(PTRACE_DETACH, child, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK((uint32_t)mutex->parking % (1 << 22) == 0); /* nobody was asleep: the count has healed */
    shared->begun = shared->done = 0;
    return is_under_way;
}

/* What the next session finds. */
static int look(retrial_session *session) {
    const int found = state();
    int answer = retrial_mutex_get_until(session, mutex, RETRIAL_X, retrial_deadline_ns(10000000000), NULL);
    CHECK(shared->begun - shared->done <= (found == HOLDING));
    if (found == HOLDING) {
        ANSWERS(RETRIAL_OWNER_DIED, answer);
        OK(retrial_mutex_consistent(session, mutex));
    } else {
        OK(answer);
        CHECK(shared->done == (found == BEFORE ? 1 : 2));
    }
    shared->begun = shared->done = 0;
    OK(retrial_mutex_release(session, mutex));
    CHECK(mutex->word == 0);
    return found;
}

int main(int argc, char **argv) {
    retrial_instance *instance;
    retrial_session *session;
    const retrial_capacity few = {.sessions = 2}; /* each of the dead gives its place back */
    int states[STATES] = {0}, steps = 0;
    CHECK(argc == 2);
    address = argv[1];
    OK(retrial_instance_create(address, &few, 0600, &instance));
    find(instance);
    OK(retrial_session_open(instance, "survivor", &session));
    while (kill_after(steps)) {
        states[look(session)]++;
        steps++;
    }
    look(session);
    for (int step = 0; park_after(step); step++) {
    }
    printf("%d kills: %d before the get, %d with the mutex, %d after the release\n", steps, states[BEFORE],
           states[HOLDING], states[AFTER]);
    OK(retrial_session_close(session));
    OK(retrial_instance_close(instance));
    OK(retrial_instance_remove(address));
    return 0;
}
