/* Who signals with the mutex held lets the waiters go on as soon as the mutex is theirs: whatever the signaller does next.
 *
 * Each game is played so often that it cannot end in time when a wait is ended by anything slower than the signal. */
#include "check.h"

enum { ROUNDS = 400 };

struct scene {
    pthread_mutex_t m, other;
    pthread_cond_t conds[2], answer;
    /* What the waiters have been given, and how much of that they have taken. */
    int given[2];
    atomic_int taken;
    bool answered;
};

struct waiter {
    struct scene *s;
    int which;
};

static void *takes(void *arg) {
    struct waiter *w = arg;
    struct scene *s = w->s;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    for (int i = 0; i < ROUNDS; i++) {
        while (s->given[w->which] == 0)
            RETURNS(pthread_cond_wait(&s->conds[w->which], &s->m), 0);
        s->given[w->which]--;
        s->taken++;
        RETURNS(pthread_cond_signal(&s->answer), 0);
    }
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    return NULL;
}

static void give(struct scene *s, int which) {
    s->given[which]++;
    RETURNS(pthread_cond_signal(&s->conds[which]), 0);
}

static void release(struct scene *s, int i) {
    (void)i;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    AWAIT(s->taken == i + 1);
}

static void after_another(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    RETURNS(pthread_mutex_lock(&s->other), 0);
    RETURNS(pthread_mutex_unlock(&s->other), 0);
    give(s, 0);
    RETURNS(pthread_mutex_lock(&s->other), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->other), 0);
    AWAIT(s->taken == i + 1);
}

/* The signaller holds the mutex twice: the first unlock gives nothing back. */
static void twice(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    CHECK_EQ(s->taken, i);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    AWAIT(s->taken == i + 1);
}

/* Waits itself instead of unlocking. */
static void waits(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    while (s->taken == i)
        RETURNS(pthread_cond_wait(&s->answer, &s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
}

/* Waits on another condition, with another mutex, before it unlocks. */
static void *answers(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->other), 0);
    s->answered = true;
    RETURNS(pthread_cond_signal(&s->answer), 0);
    RETURNS(pthread_mutex_unlock(&s->other), 0);
    return NULL;
}

static void waits_elsewhere(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->other), 0);
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    s->answered = false;
    pthread_t answerer = start(answers, s);
    while (!s->answered)
        RETURNS(pthread_cond_wait(&s->answer, &s->other), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->other), 0);
    finish(answerer);
    AWAIT(s->taken == i + 1);
}

/* A child, which has the mutex too, unlocks it first. */
static void forks(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    if (i % 20 == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            RETURNS(pthread_mutex_unlock(&s->m), 0);
            _exit(0);
        }
        reap(child);
    }
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    AWAIT(s->taken == i + 1);
}

/* The signaller is cancelled, or ends, with the mutex held: a handler unlocks it. */
static void unlocks(void *m) { RETURNS(pthread_mutex_unlock(m), 0); }

static void *gives_and_ends(void *arg) {
    struct scene *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    pthread_cleanup_push(unlocks, &s->m);
    give(s, 0);
    if (s->taken % 2 == 0) {
        CHECK_EQ(pthread_cancel(pthread_self()), 0);
        pthread_testcancel();
    }
    pthread_exit(NULL);
    pthread_cleanup_pop(1);
    return NULL;
}

static void ends(struct scene *s, int i) {
    finish(start(gives_and_ends, s));
    AWAIT(s->taken == i + 1);
}

static void without(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->given[0]++;
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    RETURNS(pthread_mutex_lock(&s->other), 0);
    RETURNS(pthread_cond_signal(&s->conds[0]), 0);
    AWAIT(s->taken == i + 1);
    RETURNS(pthread_mutex_unlock(&s->other), 0);
}

static void two_at_once(struct scene *s, int i) {
    RETURNS(pthread_mutex_lock(&s->m), 0);
    give(s, 0);
    give(s, 1);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    AWAIT(s->taken == 2 * (i + 1));
}

static void play(void (*game)(struct scene *, int), int waiters, int type) {
    static struct scene s;
    s = (struct scene){.other = PTHREAD_MUTEX_INITIALIZER,
                       .conds = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER},
                       .answer = PTHREAD_COND_INITIALIZER};
    init_kind(&s.m, (struct kind){.type = type});
    struct waiter w[2] = {{&s, 0}, {&s, 1}};
    pthread_t threads[2];
    for (int i = 0; i < waiters; i++)
        threads[i] = start(takes, &w[i]);
    for (int i = 0; i < ROUNDS; i++)
        game(&s, i);
    for (int i = 0; i < waiters; i++)
        finish(threads[i]);
    RETURNS(pthread_mutex_destroy(&s.m), 0);
}

struct short_life {
    pthread_mutex_t m;
    pthread_cond_t *cond;
    bool waits, done;
};

static void *waits_once(void *arg) {
    struct short_life *s = arg;
    RETURNS(pthread_mutex_lock(&s->m), 0);
    s->waits = true;
    while (!s->done)
        RETURNS(pthread_cond_wait(s->cond, &s->m), 0);
    RETURNS(pthread_mutex_unlock(&s->m), 0);
    return NULL;
}

/* A condition may be destroyed as soon as all its waiters are awakened, the mutex still held. */
static void destroyed_while_held(void) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_cond_t *cond = malloc(sizeof *cond);
        CHECK_EQ(pthread_cond_init(cond, NULL), 0);
        struct short_life s = {.m = PTHREAD_MUTEX_INITIALIZER, .cond = cond};
        pthread_t thread = start(waits_once, &s);
        for (bool ready = false; !ready; sched_yield()) {
            RETURNS(pthread_mutex_lock(&s.m), 0);
            ready = s.waits;
            if (ready) {
                s.done = true;
                RETURNS(pthread_cond_broadcast(cond), 0);
                RETURNS(pthread_cond_destroy(cond), 0);
                memset(cond, 0xa5, sizeof *cond);
                free(cond);
            }
            RETURNS(pthread_mutex_unlock(&s.m), 0);
        }
        finish(thread);
    }
}

int main(void) {
    play(release, 1, PTHREAD_MUTEX_NORMAL);
    play(release, 1, PTHREAD_MUTEX_ERRORCHECK);
    play(after_another, 1, PTHREAD_MUTEX_NORMAL);
    play(twice, 1, PTHREAD_MUTEX_RECURSIVE);
    play(waits, 1, PTHREAD_MUTEX_NORMAL);
    play(waits, 1, PTHREAD_MUTEX_RECURSIVE);
    play(waits_elsewhere, 1, PTHREAD_MUTEX_NORMAL);
    play(forks, 1, PTHREAD_MUTEX_NORMAL);
    play(ends, 1, PTHREAD_MUTEX_NORMAL);
    play(without, 1, PTHREAD_MUTEX_NORMAL);
    play(two_at_once, 2, PTHREAD_MUTEX_NORMAL);
    destroyed_while_held();
    return 0;
}
