/* A ledger that processes in four languages keep on one instance: the twin of ledger.cpp, ledger.py, ledger.rs.
 *
 *   cc -std=c11 ledger.c $(pkg-config --cflags --libs retrial) -o ledger
 *   ./ledger INSTANCE       a name under /dev/shm, or a path
 *
 * Each entry is written in two halves, and printed when it is whole. Start any of the four as often as you like,
 * and kill them (SIGKILL): a process killed between the halves leaves half an entry, and the next one is told. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <retrial.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN_C, IN_CPP, IN_PYTHON, IN_RUST, LANGUAGES };

struct ledger {
    uint64_t begun, done;     /* entries; differ while one is half written */
    uint64_t told[LANGUAGES]; /* deaths of holders that were told in each language */
};

static void check(int answer) {
    if (answer != RETRIAL_OK) {
        fprintf(stderr, "%s: %s\n", retrial_strerror(answer), retrial_message());
        exit(1);
    }
}

/* Gets the ledger. In C a death is told by RETRIAL_OWNER_DIED, with the mutex held. */
static void get(retrial_session *session, retrial_mutex *mutex, volatile struct ledger *ledger) {
    int answer = retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE);
    if (answer == RETRIAL_OWNER_DIED) {
        ledger->told[IN_C]++;
        ledger->begun = ledger->done; /* takes half an entry back */
        answer = retrial_mutex_consistent(session, mutex);
    }
    check(answer);
    if (ledger->begun != ledger->done) {
        fprintf(stderr, "half an entry, and no death was told\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    retrial_instance *instance;
    retrial_session *session;
    retrial_mutex *mutex;
    void *data;
    if (argc != 2) {
        fprintf(stderr, "usage: ledger INSTANCE\n");
        return 2;
    }
    check(retrial_instance_open(argv[1], NULL, 0600, &instance));
    check(retrial_session_open(instance, "C", &session));
    check(retrial_mutex_named(instance, "ledger", "ledgers", sizeof(struct ledger), &mutex, &data));
    volatile struct ledger *ledger = data;
    for (;;) {
        get(session, mutex, ledger);
        uint64_t entry = ++ledger->begun;
        sched_yield(); /* the others run while there is half an entry */
        ledger->done = entry;
        check(retrial_mutex_release(session, mutex));
        printf("%" PRIu64 "\n", entry);
        fflush(stdout); /* a line is one write: a kill leaves all of it or nothing */
    }
}
