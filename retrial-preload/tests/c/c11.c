/* The C11 family: mtx_t, cnd_t and call_once, whoever provides them. */
#include "check.h"
#include <threads.h>

enum { THREADS = 4, ROUNDS = 2000, SLOTS = 3 };

static struct timespec in_utc_ms(long ms) { return in_ms(CLOCK_REALTIME, ms); } /* TIME_UTC */

static void run(int count, thrd_start_t body, void *arg) {
    thrd_t threads[count];
    for (int i = 0; i < count; i++)
        CHECK_EQ(thrd_create(&threads[i], body, arg), thrd_success);
    for (int i = 0; i < count; i++) {
        int result;
        CHECK_EQ(thrd_join(threads[i], &result), thrd_success);
        CHECK_EQ(result, 0);
    }
}

static int finds_it_busy(void *arg) {
    CHECK_EQ(mtx_trylock(arg), thrd_busy);
    return 0;
}

static int finds_it_free(void *arg) {
    CHECK_EQ(mtx_trylock(arg), thrd_success);
    CHECK_EQ(mtx_unlock(arg), thrd_success);
    return 0;
}

static int times_out(void *arg) {
    CHECK_EQ(mtx_timedlock(arg, &PAST), thrd_timedout);
    struct timespec deadline = in_utc_ms(3);
    CHECK_EQ(mtx_timedlock(arg, &deadline), thrd_timedout);
    CHECK(reached(CLOCK_REALTIME, deadline));
    return 0;
}

struct counter {
    mtx_t m;
    int type;
    struct torn torn;
};

static int count(void *arg) {
    struct counter *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec far = in_utc_ms(60000);
        if (i % 3 == 0 && c->type & mtx_timed)
            CHECK_EQ(mtx_timedlock(&c->m, &far), thrd_success);
        else
            CHECK_EQ(mtx_lock(&c->m), thrd_success);
        if (c->type & mtx_recursive)
            CHECK_EQ(mtx_lock(&c->m), thrd_success);
        torn_step(&c->torn);
        if (c->type & mtx_recursive)
            CHECK_EQ(mtx_unlock(&c->m), thrd_success);
        CHECK_EQ(mtx_unlock(&c->m), thrd_success);
    }
    return 0;
}

static void mutex(int type) {
    struct counter c = {.type = type};
    CHECK_EQ(mtx_init(&c.m, type), thrd_success);
    CHECK_EQ(mtx_lock(&c.m), thrd_success);
    run(1, finds_it_busy, &c.m);
    if (type & mtx_recursive) {
        CHECK_EQ(mtx_lock(&c.m), thrd_success);
        CHECK_EQ(mtx_trylock(&c.m), thrd_success);
        CHECK_EQ(mtx_unlock(&c.m), thrd_success);
        CHECK_EQ(mtx_unlock(&c.m), thrd_success);
        run(1, finds_it_busy, &c.m);
    } else {
        CHECK_EQ(mtx_trylock(&c.m), thrd_busy);
    }
    if (type & mtx_timed) {
        run(1, times_out, &c.m);
        if (!(type & mtx_recursive))
            times_out(&c.m);
    }
    CHECK_EQ(mtx_unlock(&c.m), thrd_success);
    run(1, finds_it_free, &c.m);
    run(THREADS, count, &c);
    CHECK_EQ(c.torn.left, THREADS * ROUNDS);
    mtx_destroy(&c.m);
}

struct queue {
    mtx_t m;
    cnd_t changed;
    int length, produced, consumed;
};

static int produce(void *arg) {
    struct queue *q = arg;
    CHECK_EQ(mtx_lock(&q->m), thrd_success);
    for (int i = 0; i < ROUNDS; i++) {
        while (q->length == SLOTS)
            CHECK_EQ(cnd_wait(&q->changed, &q->m), thrd_success);
        q->length++;
        q->produced++;
        CHECK_EQ(cnd_broadcast(&q->changed), thrd_success);
    }
    CHECK_EQ(mtx_unlock(&q->m), thrd_success);
    return 0;
}

static int consume(void *arg) {
    struct queue *q = arg;
    CHECK_EQ(mtx_lock(&q->m), thrd_success);
    for (int i = 0; i < ROUNDS; i++) {
        while (q->length == 0) {
            struct timespec near = in_utc_ms(1);
            int result = cnd_timedwait(&q->changed, &q->m, &near);
            CHECK(result == thrd_success || result == thrd_timedout);
            if (result == thrd_timedout)
                CHECK(reached(CLOCK_REALTIME, near));
        }
        q->length--;
        q->consumed++;
        CHECK_EQ(cnd_broadcast(&q->changed), thrd_success);
    }
    CHECK_EQ(mtx_unlock(&q->m), thrd_success);
    return 0;
}

static int produce_and_consume(void *arg) {
    thrd_t other;
    CHECK_EQ(thrd_create(&other, produce, arg), thrd_success);
    consume(arg);
    CHECK_EQ(thrd_join(other, NULL), thrd_success);
    return 0;
}

static int waits_for_turn(void *arg) {
    struct queue *q = arg;
    CHECK_EQ(mtx_lock(&q->m), thrd_success);
    q->produced++;
    while (q->length == 0)
        CHECK_EQ(cnd_wait(&q->changed, &q->m), thrd_success);
    q->length--;
    CHECK_EQ(mtx_unlock(&q->m), thrd_success);
    return 0;
}

static void condition(int type) {
    struct queue q = {.length = 0};
    CHECK_EQ(mtx_init(&q.m, type), thrd_success);
    CHECK_EQ(cnd_init(&q.changed), thrd_success);
    run(2, produce_and_consume, &q);
    CHECK_EQ(q.length, 0);
    CHECK_EQ(q.produced, 2 * ROUNDS);
    CHECK_EQ(q.consumed, 2 * ROUNDS);

    CHECK_EQ(mtx_lock(&q.m), thrd_success);
    CHECK_EQ(cnd_timedwait(&q.changed, &q.m, &PAST), thrd_timedout);
    run(1, finds_it_busy, &q.m);
    CHECK_EQ(mtx_unlock(&q.m), thrd_success);

    q.produced = 0;
    thrd_t waiter;
    CHECK_EQ(thrd_create(&waiter, waits_for_turn, &q), thrd_success);
    for (bool given = false; !given; sched_yield()) {
        CHECK_EQ(mtx_lock(&q.m), thrd_success);
        given = q.produced == 1; /* it waits, since we have the mutex */
        q.length = given;
        if (given)
            CHECK_EQ(cnd_signal(&q.changed), thrd_success);
        CHECK_EQ(mtx_unlock(&q.m), thrd_success);
    }
    CHECK_EQ(thrd_join(waiter, NULL), thrd_success);
    cnd_destroy(&q.changed);
    mtx_destroy(&q.m);
}

static once_flag flag = ONCE_FLAG_INIT;
static atomic_int calls;

static void call(void) { calls++; }

static int calls_once(void *arg) {
    (void)arg;
    call_once(&flag, call);
    CHECK_EQ(calls, 1);
    return 0;
}

int main(void) {
    mutex(mtx_plain);
    mutex(mtx_timed);
    mutex(mtx_plain | mtx_recursive);
    mutex(mtx_timed | mtx_recursive);
    mutex(mtx_timed << 8); /* of no kind: a plain one, as libc has it */
    condition(mtx_plain);
    condition(mtx_timed);
    condition(mtx_plain | mtx_recursive);
    run(THREADS, calls_once, NULL);
}
