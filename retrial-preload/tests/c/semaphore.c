/* A normal mutex as a semaphore: one thread waits for the mutex that it holds, another unlocks it, while
 * signals stop the latter anywhere. No wake-up is lost. */
#include "check.h"
#include <sys/time.h>

enum { TURNS = 600000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_long asked, answered;

static void pause_a_little(int signal) {
    (void)signal;
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void *answer(void *arg) {
    (void)arg;
    for (long turn = 1; turn <= TURNS; turn++) {
        while (asked < turn)
            ;
        RETURNS(pthread_mutex_unlock(&mutex), 0);
        while (answered < turn)
            sched_yield();
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = pause_a_little, .sa_flags = SA_RESTART};
    struct itimerval often = {{.tv_usec = 300}, {.tv_usec = 300}};
    sigset_t alarm;
    pthread_t other;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    RETURNS(sigaction(SIGALRM, &action, NULL), 0);
    RETURNS(pthread_create(&other, NULL, answer, NULL), 0);
    RETURNS(pthread_sigmask(SIG_BLOCK, &alarm, NULL), 0);
    RETURNS(setitimer(ITIMER_REAL, &often, NULL), 0);
    RETURNS(pthread_mutex_lock(&mutex), 0);
    for (long turn = 1; turn <= TURNS; turn++) {
        asked = turn;
        RETURNS(pthread_mutex_lock(&mutex), 0);
        answered = turn;
    }
    RETURNS(pthread_join(other, NULL), 0);
    return 0;
}
