/* Several processes, each with two sessions in two threads, move between two accounts under one mutex: by X without
 * a call, X by calls, and S. Some are killed. The sum is right whenever the mutex was not left by a dead session.
 * The argument is the instance's path. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ /* it is told by what the header inlines */
#define retrial_mutex_get_call retrial_mutex_get_until
#define retrial_mutex_release_call retrial_mutex_release
#endif

enum { PROCESSES = 4, ROUNDS = 20000, SUM = 1000 };

struct accounts {
    volatile int64_t from, to;
    volatile uint64_t inside, rounds, told;
};

static retrial_instance *instance;
static retrial_mutex *mutex;
static struct accounts *accounts;

static void get(retrial_session *session, int round) {
    int answer = round % 2 == 0 ? retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE)
                                : retrial_mutex_get_call(session, mutex, RETRIAL_X, RETRIAL_FOREVER, RETRIAL_HERE);
    if (answer == RETRIAL_OWNER_DIED) {
        accounts->to = SUM - accounts->from;
        accounts->inside = 0;
        accounts->told++;
        answer = retrial_mutex_consistent(session, mutex);
    }
    OK(answer);
    CHECK(accounts->inside++ == 0 && accounts->from + accounts->to == SUM);
}

static void release(retrial_session *session, int round) {
    CHECK(--accounts->inside == 0);
    OK(round % 3 == 0 ? retrial_mutex_release_call(session, mutex) : retrial_mutex_release(session, mutex));
}

static void reads(retrial_session *session) {
    int answer = retrial_mutex_get(session, mutex, RETRIAL_S, RETRIAL_HERE);
    if (answer != RETRIAL_OWNER_DIED) {
        OK(answer);
        CHECK(accounts->inside == 0 && accounts->from + accounts->to == SUM);
    }
    OK(retrial_mutex_release(session, mutex));
}

static void *moves(void *unused) {
    retrial_session *session;
    OK(retrial_session_open(instance, "moves", &session));
    for (int round = 0; round < ROUNDS; round++) {
        get(session, round);
        accounts->from--;
        if (round % 1024 == 0) {
            sched_yield(); /* the others park meanwhile */
        }
        accounts->to++;
        accounts->rounds++;
        release(session, round);
        if (round % 16 == 0) {
            reads(session);
        }
    }
    OK(retrial_session_close(session));
    return unused;
}

/* Killed with the mutex, in the midst of a move. */
static void dies(void) {
    retrial_session *session;
    OK(retrial_session_open(instance, "dies", &session));
    get(session, 0);
    accounts->from--;
    kill(getpid(), SIGKILL);
}

static void worker(int number) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, moves, NULL) == 0);
    moves(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    if (number % 2 == 0) {
        dies();
    }
    exit(0);
}

int main(int argc, char **argv) {
    void *data;
    retrial_session *session;
    CHECK(argc == 2);
    OK(retrial_instance_create(argv[1], NULL, 0600, &instance));
    OK(retrial_mutex_named(instance, "accounts", "test", sizeof *accounts, &mutex, &data));
    accounts = data;
    accounts->to = SUM;
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            worker(i);
        }
    }
    int status, killed = 0;
    while (wait(&status) > 0) {
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    }
    OK(retrial_session_open(instance, "looks", &session));
    get(session, 0);
    CHECK(killed == PROCESSES / 2 && accounts->told == PROCESSES / 2);
    CHECK(accounts->rounds == (uint64_t)2 * PROCESSES * ROUNDS);
    release(session, 1);
    OK(retrial_session_close(session));
    OK(retrial_instance_close(instance));
    OK(retrial_instance_remove(argv[1]));
    return 0;
}
