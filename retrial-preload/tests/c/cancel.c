/* Cancellation and pthread_exit: a condition's wait is a cancellation point and takes the mutex
 * again first, the locks are none, and clean-up handlers find what was held still held. */
#include "check.h"

enum wait_by { WAIT, TIMEDWAIT, CLOCKWAIT, WAYS };

struct scene {
    struct kind kind;
    enum wait_by way;
    pthread_mutex_t m;
    pthread_cond_t cond;
    atomic_int ready;     /* set under the mutex: its holder sees that the other waits */
    atomic_bool main_has; /* the mutex */
    int cleaned, tokens;
};

static struct scene *set(struct scene *s, struct kind k, enum wait_by way) {
    memset(s, 0, sizeof *s);
    s->kind = k;
    s->way = way;
    init_kind(&s->m, k);
    RETURNS(pthread_cond_init(&s->cond, NULL), 0);
    return s;
}

static int wait_once(struct scene *s) {
    struct timespec far;
    switch (s->way) {
    case WAIT:
        return pthread_cond_wait(&s->cond, &s->m);
    case TIMEDWAIT:
        far = in_ms(CLOCK_REALTIME, 60000);
        return pthread_cond_timedwait(&s->cond, &s->m, &far);
    default:
        far = in_ms(CLOCK_MONOTONIC, 60000);
        return pthread_cond_clockwait(&s->cond, &s->m, CLOCK_MONOTONIC, &far);
    }
}

static void main_locks(struct scene *s) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->main_has = true;
}

static void main_unlocks(struct scene *s) {
    s->main_has = false;
    RETURNS(pthread_mutex_unlock(&s->m), 0);
}

/* Returns with the mutex, when `ready` has reached `count` under it. */
static void main_locks_when_ready(struct scene *s, int count) {
    for (;; sched_yield()) {
        main_locks(s);
        if (s->ready == count)
            return;
        main_unlocks(s);
    }
}

/* The inner handler runs first; both run with the mutex held, once. */
static void inner(void *arg) {
    struct scene *s = arg;
    CHECK(!s->main_has);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &s->m), EBUSY);
    if (s->kind.type == PTHREAD_MUTEX_ERRORCHECK)
        RETURNS(pthread_mutex_lock(&s->m), EDEADLK);
    CHECK_EQ(s->cleaned++, 0);
}

static void outer(void *arg) {
    struct scene *s = arg;
    CHECK(!s->main_has);
    CHECK_EQ(s->cleaned++, 1);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
}

static void *waits_for_ever(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    pthread_cleanup_push(outer, s);
    pthread_cleanup_push(inner, s);
    s->ready = 1;
    for (;;)
        RETURNS(wait_once(s), 0);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled_in_wait(struct scene *s) {
    pthread_t waiter = start(waits_for_ever, s);
    main_locks_when_ready(s, 1);
    CHECK_EQ(pthread_cancel(waiter), 0);
    for (int i = 0; i < 10; i++) {
        sched_yield();
        CHECK_EQ(s->cleaned, 0); /* not while we have the mutex */
    }
    main_unlocks(s);
    CHECK(finish(waiter) == PTHREAD_CANCELED);
    CHECK_EQ(s->cleaned, 2);
    RETURNS(pthread_mutex_trylock(&s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_cond_destroy(&s->cond), 0);
    RETURNS(pthread_mutex_destroy(&s->m), 0);
}

/* Cancelled before it waits, it does not begin to. */
static void *waits_when_cancelled(void *arg) {
    struct scene *s = arg;
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    return waits_for_ever(s);
}

static void cancelled_before_wait(struct scene *s) {
    pthread_t waiter = start(waits_when_cancelled, s);
    CHECK(finish(waiter) == PTHREAD_CANCELED);
    CHECK_EQ(s->cleaned, 2);
    CHECK_EQ(elsewhere(pthread_mutex_trylock, &s->m), 0);
}

/* With cancellation disabled a wait ends by a signal only. */
static void *waits_undisturbed(void *arg) {
    struct scene *s = arg;
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->ready = 1;
    while (s->tokens == 0)
        RETURNS(wait_once(s), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    s->cleaned = 1;
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL), 0);
    pthread_testcancel();
    return NULL;
}

static void disabled_in_wait(struct scene *s) {
    pthread_t waiter = start(waits_undisturbed, s);
    main_locks_when_ready(s, 1);
    CHECK_EQ(pthread_cancel(waiter), 0);
    main_unlocks(s);
    main_locks(s);
    s->tokens = 1;
    RETURNS(pthread_cond_signal(&s->cond), 0);
    main_unlocks(s);
    CHECK(finish(waiter) == PTHREAD_CANCELED);
    CHECK_EQ(s->cleaned, 1);
}

/* Who is cancelled does not keep a signal from the others. */
static void unlock_only(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_unlock(&s->m), 0);
}

static void *takes_a_token(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    pthread_cleanup_push(unlock_only, s);
    s->ready++;
    while (s->tokens == 0)
        RETURNS(wait_once(s), 0);
    s->tokens--;
    pthread_cleanup_pop(1);
    return s;
}

static void signal_is_not_kept(struct scene *s) {
    pthread_t cancelled = start(takes_a_token, s), other = start(takes_a_token, s);
    main_locks_when_ready(s, 2);
    s->tokens = 1;
    RETURNS(pthread_cond_signal(&s->cond), 0);
    CHECK_EQ(pthread_cancel(cancelled), 0);
    main_unlocks(s);
    if (finish(cancelled) != PTHREAD_CANCELED) {
        main_locks(s);
        s->tokens++;
        RETURNS(pthread_cond_signal(&s->cond), 0);
        main_unlocks(s);
    }
    CHECK(finish(other) == s);
    CHECK_EQ(s->tokens, 0);
}

/* The locks are no cancellation points, waiting or not. */
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;

static void *locks_all(void *arg) {
    struct scene *s = arg;
    struct timespec far = in_ms(CLOCK_REALTIME, 60000), far_mono = in_ms(CLOCK_MONOTONIC, 60000);
    s->ready++;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    s->ready++;
    AWAIT(s->ready == 3); /* main has it again */
    RETURNS(pthread_mutex_timedlock(&s->m, &far), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_mutex_clocklock(&s->m, CLOCK_MONOTONIC, &far_mono), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_mutex_trylock(&s->m), 0);
    RETURNS(pthread_cond_signal(&s->cond), 0);
    RETURNS(pthread_cond_broadcast(&s->cond), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    s->ready++;
    RETURNS(pthread_rwlock_rdlock(&rw), 0);
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    RETURNS(pthread_rwlock_wrlock(&rw), 0);
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    RETURNS(pthread_rwlock_timedwrlock(&rw, &far), 0);
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    RETURNS(pthread_spin_lock(&spin), 0);
    RETURNS(pthread_spin_unlock(&spin), 0);
    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    return s;
}

static void not_cancelled_in_locks(struct scene *s) {
    main_locks(s);
    RETURNS(pthread_rwlock_wrlock(&rw), 0);
    pthread_t locker = start(locks_all, s);
    AWAIT(s->ready == 1);
    CHECK_EQ(pthread_cancel(locker), 0);
    for (int i = 0; i < 10; i++)
        sched_yield();
    main_unlocks(s);
    AWAIT(s->ready == 2);
    main_locks(s);
    s->ready++;
    for (int i = 0; i < 10; i++)
        sched_yield();
    main_unlocks(s);
    AWAIT(s->ready == 4);
    for (int i = 0; i < 10; i++)
        sched_yield();
    RETURNS(pthread_rwlock_unlock(&rw), 0);
    CHECK(finish(locker) == s);
}

/* pthread_exit, from some way down, with a lock held that a handler releases. */
static __attribute__((noinline)) void leave(struct scene *s) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    pthread_cleanup_push(outer, s);
    pthread_cleanup_push(inner, s);
    pthread_exit(&s->tokens);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
}

static void *leaves(void *arg) {
    leave(arg);
    return NULL;
}

static void exit_with_a_lock(struct scene *s) {
    CHECK(finish(start(leaves, s)) == &s->tokens);
    CHECK_EQ(s->cleaned, 2);
    RETURNS(pthread_mutex_trylock(&s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
}

int main(void) {
    static struct scene s;
    CHECK_EQ(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE), 0);
    for (int i = 0; i < KINDS; i++) {
        struct kind k = kind_at(i);
        for (enum wait_by way = 0; way < WAYS; way++) {
            for (int round = 0; round < 10; round++) {
                cancelled_in_wait(set(&s, k, way));
                signal_is_not_kept(set(&s, k, way));
            }
            cancelled_before_wait(set(&s, k, way));
            disabled_in_wait(set(&s, k, way));
        }
        not_cancelled_in_locks(set(&s, k, WAIT));
        exit_with_a_lock(set(&s, k, WAIT));
    }
}
