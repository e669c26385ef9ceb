/* Locks before main and after it: before any library's constructor, in constructors, in handlers of
 * exit, in destructors of threads and of the program, and after all of these. */
#include "check.h"

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t *const mutexes[] = {&normal, &recursive, &errorcheck, &adaptive};
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;

static void use_all(void) {
    for (int i = 0; i < 4; i++) {
        RETURNS(pthread_mutex_lock(mutexes[i]), 0);
        RETURNS(pthread_mutex_trylock(mutexes[i]), i == PTHREAD_MUTEX_RECURSIVE ? 0 : EBUSY);
        if (i == PTHREAD_MUTEX_RECURSIVE)
            RETURNS(pthread_mutex_unlock(mutexes[i]), 0);
        RETURNS(pthread_cond_timedwait(&cond, mutexes[i], &PAST), ETIMEDOUT);
        RETURNS(pthread_mutex_unlock(mutexes[i]), 0);
    }
    RETURNS(pthread_cond_signal(&cond), 0);
    RETURNS(pthread_rwlock_rdlock(&rw), 0);
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    RETURNS(pthread_rwlock_trywrlock(&rw), 0);
    RETURNS(pthread_rwlock_unlock(&rw), 0);

    pthread_mutex_t robust;
    init_kind(&robust, (struct kind){.robust = PTHREAD_MUTEX_ROBUST});
    RETURNS(pthread_mutex_lock(&robust), 0);
    RETURNS(pthread_mutex_unlock(&robust), 0);
    RETURNS(pthread_mutex_destroy(&robust), 0);
    pthread_spinlock_t spin;
    RETURNS(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE), 0);
    RETURNS(pthread_spin_lock(&spin), 0);
    RETURNS(pthread_spin_unlock(&spin), 0);
    RETURNS(pthread_spin_destroy(&spin), 0);
}

/* With a second thread: it waits for a turn, and has it. */
static int turn;

static void *takes_turn(void *arg) {
    RETURNS(pthread_mutex_lock(&normal), 0);
    while (turn == 0)
        RETURNS(pthread_cond_wait(&cond, &normal), 0);
    turn--;
    RETURNS(pthread_mutex_unlock(&normal), 0);
    return arg;
}

static void use_with_thread(void) {
    use_all();
    pthread_t thread = start(takes_turn, NULL);
    RETURNS(pthread_mutex_lock(&normal), 0);
    turn++;
    RETURNS(pthread_cond_broadcast(&cond), 0);
    RETURNS(pthread_mutex_unlock(&normal), 0);
    finish(thread);
    CHECK_EQ(turn, 0);
}

/* The stages, each noted when it has come through; a child's are seen by its parent. */
enum stage { PREINIT, CONSTRUCTOR, MAIN, THREAD_END, AT_EXIT, DESTRUCTOR, AFTER_ALL, STAGES };
static int own_notes[STAGES], *notes = own_notes, notes_taken;

static void note(enum stage stage) { notes[stage] = ++notes_taken; }

static void after_all(int status, void *arg) {
    (void)status, (void)arg;
    use_all();
    note(AFTER_ALL);
}

static void before_all(void) {
    alarm(60);
    use_all();
    note(PREINIT);
    /* Registered before the loader's own handler, so it runs after it; atexit would run with the
     * program's destructors. */
    CHECK_EQ(on_exit(after_all, NULL), 0);
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_all;

__attribute__((constructor(101))) static void construct(void) {
    use_with_thread();
    note(CONSTRUCTOR);
}

__attribute__((destructor(101))) static void destruct(void) {
    use_with_thread();
    note(DESTRUCTOR);
}

static void at_exit(void) {
    use_with_thread();
    note(AT_EXIT);
}

static void end_of_thread(void *held) {
    use_all();
    RETURNS(pthread_mutex_unlock(held), 0);
    note(THREAD_END);
}

static pthread_key_t key;
static pthread_mutex_t held_to_the_end = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

static void *ends(void *arg) {
    RETURNS(pthread_mutex_lock(&held_to_the_end), 0);
    CHECK_EQ(pthread_setspecific(key, &held_to_the_end), 0);
    return arg;
}

static void *whole_life(void *arg) {
    notes = memcpy(arg, own_notes, sizeof own_notes);
    use_with_thread();
    note(MAIN);
    CHECK_EQ(pthread_key_create(&key, end_of_thread), 0);
    finish(start(ends, NULL));
    RETURNS(pthread_mutex_trylock(&held_to_the_end), 0);
    RETURNS(pthread_mutex_unlock(&held_to_the_end), 0);
    CHECK_EQ(atexit(at_exit), 0);
    exit(0);
}

int main(void) {
    int *of_child = shared_memory(sizeof own_notes);
    reap(spawn(whole_life, of_child));
    for (int stage = PREINIT; stage < STAGES; stage++)
        CHECK_EQ(of_child[stage], stage + 1);
    whole_life(own_notes);
}
