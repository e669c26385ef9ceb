/* Counts in the mutex of the page's program, and is killed before it releases. The argument is the instance's path. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    retrial_instance *instance;
    retrial_session *session;
    retrial_mutex *mutex;
    void *data;
    CHECK(argc == 2);
    OK(retrial_instance_attach(argv[1], &instance));
    OK(retrial_session_open(instance, "dies", &session));
    OK(retrial_mutex_named(instance, "hits", "counters", sizeof(long), &mutex, &data));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    ++*(long *)data;
    return kill(getpid(), SIGKILL);
}
