/* A program that goes into the background and then becomes another one, each with as many gets. */
#include "check.h"

enum { GETS = 1000 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void gets_some(void) {
    for (int i = 0; i < GETS; i++) {
        RETURNS(pthread_mutex_lock(&m), 0);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
}

int main(int argc, char **argv) {
    gets_some();
    if (argc > 1)
        return 0;
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child > 0)
        return 0;
    alarm(300); /* not inherited */
    CHECK(setsid() == getpid());
    AWAIT(getppid() != parent);
    gets_some();
    execl(argv[0], argv[0], "becomes", NULL);
    CHECK_EQ(errno, 0);
}
