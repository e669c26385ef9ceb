/* Two processes count under a mutex; one is killed with it. The survivor is told, repairs, and the total is right.
 * First with a named mutex, then with one in a struct of the program's own. The argument is the instance's path. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20000, KILLED_AT = 5000 };

struct count {
    uint64_t begun, done; /* differ while a holder is half-way */
    uint64_t told;        /* RETRIAL_OWNER_DIED, and repaired */
    uint64_t victims;     /* what the victim has counted, half-done rounds not among it */
};

struct own {
    uint32_t before;
    retrial_mutex mutex; /* all 0: nobody initialises it */
    struct count count;
};

/* A round that does not count is taken back before the release. */
static void count_once(retrial_session *session, retrial_mutex *mutex, volatile struct count *count, int is_victim,
                       int counts) {
    int answer = retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE);
    if (answer == RETRIAL_OWNER_DIED) {
        CHECK(!is_victim && count->begun == count->done + 1);
        CHECK(strstr(retrial_message(), "died while it held X"));
        count->begun = count->done;
        count->told++;
        OK(retrial_mutex_consistent(session, mutex));
    } else {
        OK(answer);
    }
    count->begun++;
    if (is_victim && count->victims == KILLED_AT) {
        kill(getpid(), SIGKILL);
    }
    count->done++;
    count->victims += is_victim != 0;
    count->begun -= !counts;
    count->done -= !counts;
    OK(retrial_mutex_release(session, mutex));
}

/* What both processes do; the survivor goes on until it was told. */
static void count(retrial_instance *instance, retrial_mutex *mutex, struct count *count, int is_victim) {
    retrial_session *session;
    OK(retrial_session_open(instance, is_victim ? "victim" : "survivor", &session));
    for (int round = 0; round < ROUNDS || is_victim; round++) {
        count_once(session, mutex, count, is_victim, 1);
    }
    while (((volatile struct count *)count)->told == 0) {
        count_once(session, mutex, count, 0, 0);
    }
    OK(retrial_session_close(session));
}

static void check_total(struct count *total, pid_t victim) {
    int status;
    CHECK(waitpid(victim, &status, 0) == victim);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(total->told == 1 && total->victims == KILLED_AT);
    CHECK(total->begun == total->done && total->done == ROUNDS + KILLED_AT);
}

static void named(const char *address) {
    retrial_instance *instance;
    retrial_mutex *mutex;
    void *data;
    pid_t victim = fork();
    CHECK(victim >= 0);
    OK(retrial_instance_open(address, NULL, 0600, &instance));
    OK(retrial_mutex_named(instance, "count", "test", sizeof(struct count), &mutex, &data));
    CHECK((uintptr_t)data % 16 == 0);
    count(instance, mutex, data, victim == 0);
    check_total(data, victim);
    OK(retrial_instance_close(instance));
}

static void in_own_memory(const char *address) {
    struct own *own = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    retrial_instance *instance;
    pid_t victim = fork();
    CHECK(victim >= 0);
    OK(retrial_instance_open(address, NULL, 0600, &instance));
    count(instance, &own->mutex, &own->count, victim == 0);
    check_total(&own->count, victim);
    CHECK(own->before == 0);
    OK(retrial_mutex_destroy(instance, &own->mutex));
    OK(retrial_instance_close(instance));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    named(argv[1]);
    in_own_memory(argv[1]);
    OK(retrial_instance_remove(argv[1]));
    return 0;
}
