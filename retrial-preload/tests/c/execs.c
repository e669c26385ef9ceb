/* A program that replaces itself: what its first thread held robustly is inherited (of another thread the kernel forgets
 * it), and the new program's locks work. */
#include "check.h"

struct account {
    pthread_mutex_t m;
    atomic_int held;
};

static const char *program;

static void *replaces(void *arg) {
    struct account *a = arg;
    RETURNS(pthread_mutex_lock(&a->m), 0);
    a->held = 1;
    execl(program, program, "replaced", NULL);
    CHECK_EQ(errno, 0);
    return NULL;
}

static void replaced(void) {
    for (int i = 0; i < KINDS; i++) {
        pthread_mutex_t m;
        init_kind(&m, kind_at(i));
        RETURNS(pthread_mutex_lock(&m), 0);
        CHECK_EQ(elsewhere(pthread_mutex_trylock, &m), EBUSY);
        RETURNS(pthread_mutex_unlock(&m), 0);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        replaced();
        return 0;
    }
    program = argv[0];
    struct account *a = shared_memory(sizeof *a);
    for (int i = 12; i < KINDS; i++) { /* robust and shared */
        memset(a, 0, sizeof *a);
        init_kind(&a->m, kind_at(i));
        pid_t child = spawn(replaces, a);
        AWAIT(a->held);
        RETURNS(pthread_mutex_lock(&a->m), EOWNERDEAD);
        RETURNS(pthread_mutex_consistent(&a->m), 0);
        RETURNS(pthread_mutex_unlock(&a->m), 0);
        reap(child);
    }
}
