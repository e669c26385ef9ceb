/* A handler of a signal forks while its thread waits: parent and child wait on, and get what they wait for
 * one after the other. */
#include "check.h"

struct shared {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_spinlock_t spin;
    atomic_int held, waits, forked, users, gets;
};

static struct shared *s;
static const char *of;
static volatile pid_t made;

static int lock(void) {
    return of[0] == 'w' ? pthread_rwlock_wrlock(&s->rwlock)
           : of[0] == 's' ? pthread_spin_lock(&s->spin)
                          : pthread_mutex_lock(&s->mutex);
}

static int unlock(void) {
    return of[0] == 'w' ? pthread_rwlock_unlock(&s->rwlock)
           : of[0] == 's' ? pthread_spin_unlock(&s->spin)
                          : pthread_mutex_unlock(&s->mutex);
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static void forks(int signal) {
    int kept = errno;
    made = fork();
    CHECK(made >= 0 && signal == SIGUSR1);
    s->forked++;
    errno = kept;
}

/* Has what its parent wants until that has waited for a while, has forked, and has waited together with the
 * child. */
static void *holds(void *arg) {
    RETURNS(lock(), 0);
    CHECK_EQ(s->users++, 0);
    s->held = 1;
    AWAIT(s->waits);
    sleep_ms(200);
    CHECK_EQ(kill(getppid(), SIGUSR1), 0);
    AWAIT(s->forked == 2);
    sleep_ms(100);
    CHECK_EQ(--s->users, 0);
    RETURNS(unlock(), 0);
    return arg;
}

static void begin(const char *object) {
    of = object;
    s->held = s->waits = s->forked = s->users = s->gets = 0;
    init_kind(&s->mutex, (struct kind){.pshared = 1, .robust = of[0] == 'r'});
    snprintf(about, sizeof about, "[%s] ", of);
}

/* Parent and child come here with the lock. As it is, libc gets a robust mutex for the child in its parent's
 * name: for ever, if the child has it first. */
static void use_and_end(pid_t holder) {
    CHECK_EQ(s->users++, 0);
    sleep_ms(20);
    s->gets++;
    CHECK_EQ(--s->users, 0);
    RETURNS(unlock(), 0);
    if (made == 0)
        _exit(0);
    reap(made);
    reap(holder);
    CHECK_EQ(s->gets, 2);
}

static void waits_for(const char *object) {
    begin(object);
    pid_t holder = spawn(holds, NULL);
    AWAIT(s->held);
    s->waits = 1;
    RETURNS(lock(), 0);
    use_and_end(holder);
}

/* It waits for the mutex when its wait on a condition is over. */
static void comes_back_from_a_condition(void) {
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    begin("mutex of a condition");
    RETURNS(lock(), 0);
    pid_t holder = spawn(holds, NULL);
    struct timespec until = in_ms(CLOCK_REALTIME, 100);
    s->waits = 1;
    int result = pthread_cond_timedwait(&cond, &s->mutex, &until);
    CHECK(result == ETIMEDOUT || result == 0);
    use_and_end(holder);
}

static pthread_mutex_t of_child = PTHREAD_MUTEX_INITIALIZER, m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool is_done;

static void locks(void) {
    RETURNS(pthread_mutex_lock(&of_child), 0);
    RETURNS(pthread_mutex_unlock(&of_child), 0);
}

static void *signals_parent(void *arg) {
    AWAIT(s->waits);
    sleep_ms(100);
    CHECK_EQ(kill(getppid(), SIGUSR1), 0);
    return arg;
}

static void *is_signalled(void *arg) {
    RETURNS(pthread_mutex_lock(&m), 0);
    s->held++;
    while (!is_done)
        RETURNS(pthread_cond_wait(&cond, &m), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    return arg;
}

/* It waits on the condition itself. A handler of fork locks, so that the child's first call comes before it
 * waits on. */
static void waits_on_a_condition(void) {
    begin("condition");
    CHECK_EQ(pthread_atfork(NULL, NULL, locks), 0);
    pid_t child = spawn(signals_parent, NULL);
    RETURNS(pthread_mutex_lock(&m), 0);
    struct timespec until = in_ms(CLOCK_REALTIME, 400);
    s->waits = 1;
    while (pthread_cond_timedwait(&cond, &m, &until) == 0)
        continue;
    RETURNS(pthread_mutex_unlock(&m), 0);
    AWAIT(s->forked == 2);
    if (made != 0) {
        reap(made);
        reap(child);
    }
    s->held = 0;
    pthread_t thread = start(is_signalled, NULL);
    AWAIT(s->held);
    RETURNS(pthread_mutex_lock(&m), 0);
    is_done = true;
    RETURNS(pthread_cond_signal(&cond), 0);
    RETURNS(pthread_mutex_unlock(&m), 0);
    finish(thread);
    RETURNS(pthread_cond_destroy(&cond), 0);
    if (made == 0)
        _exit(0);
}

int main(int count, char **words) {
    s = shared_memory(sizeof *s);
    pthread_rwlockattr_t attr;
    CHECK_EQ(pthread_rwlockattr_init(&attr), 0);
    CHECK_EQ(pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
    CHECK_EQ(pthread_rwlock_init(&s->rwlock, &attr), 0);
    CHECK_EQ(pthread_spin_init(&s->spin, PTHREAD_PROCESS_SHARED), 0);
    CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = forks}, NULL) == 0);
    waits_for("mutex");
    if (count > 1)
        waits_for(words[1]);
    waits_for("wrlock");
    waits_for("spin");
    comes_back_from_a_condition();
    waits_on_a_condition();
}
