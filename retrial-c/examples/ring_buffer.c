/* A ring buffer that several processes put into and take from, and that survives the death of any of them.
 *
 *   cc -std=c11 ring_buffer.c $(pkg-config --cflags --libs retrial) -o ring_buffer
 *   ./ring_buffer INSTANCE       a name under /dev/shm, or a path
 *
 * The buffer is the data of a named mutex: each process finds both by the name. Look from outside meanwhile:
 * retrial show -i INSTANCE mutexes */
#define _GNU_SOURCE
#include <inttypes.h>
#include <retrial.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 64, PRODUCERS = 2, CONSUMERS = 2, ITEMS = 10000 };

struct ring {
    uint64_t put, taken; /* so many so far; the difference is what is in the buffer */
    uint64_t sum;        /* of what was taken, once the consumers have ended */
    uint64_t slots[SLOTS];
};

static void check(int answer, const char *what) {
    if (answer != RETRIAL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, retrial_message(), retrial_strerror(answer));
        exit(1);
    }
}

/* Gets the ring. A process that died with it has left whole items only: each of the two changes below ends with one
 * store, of `put` or of `taken`. So there is nothing to repair. */
static void get(retrial_session *session, retrial_mutex *mutex, retrial_location *at) {
    int answer = retrial_mutex_get(session, mutex, RETRIAL_X, at);
    if (answer == RETRIAL_OWNER_DIED) {
        answer = retrial_mutex_consistent(session, mutex);
    }
    check(answer, "get");
}

static int put(retrial_session *session, retrial_mutex *mutex, struct ring *ring, uint64_t item) {
    get(session, mutex, RETRIAL_HERE);
    int fits = ring->put - ring->taken < SLOTS;
    if (fits) {
        ring->slots[ring->put % SLOTS] = item;
        __atomic_store_n(&ring->put, ring->put + 1, __ATOMIC_RELEASE);
    }
    check(retrial_mutex_release(session, mutex), "release");
    return fits;
}

/* 1 if an item was taken, 0 if there was none, -1 if none will come. */
static int take(retrial_session *session, retrial_mutex *mutex, struct ring *ring, uint64_t *item) {
    get(session, mutex, RETRIAL_HERE);
    int taken = ring->taken < ring->put ? 1 : ring->taken == PRODUCERS * ITEMS ? -1 : 0;
    if (taken == 1) {
        *item = ring->slots[ring->taken % SLOTS];
        __atomic_store_n(&ring->taken, ring->taken + 1, __ATOMIC_RELEASE);
    }
    check(retrial_mutex_release(session, mutex), "release");
    return taken;
}

static void produce(retrial_session *session, retrial_mutex *mutex, struct ring *ring) {
    for (uint64_t item = 1; item <= ITEMS; item++) {
        while (!put(session, mutex, ring, item)) {
            sched_yield();
        }
    }
}

static void consume(retrial_session *session, retrial_mutex *mutex, struct ring *ring) {
    uint64_t item = 0, sum = 0;
    for (int taken = 0; taken >= 0;) {
        taken = take(session, mutex, ring, &item);
        if (taken == 1) {
            sum += item;
        } else {
            sched_yield();
        }
    }
    get(session, mutex, RETRIAL_HERE);
    ring->sum += sum;
    check(retrial_mutex_release(session, mutex), "release");
}

static void run(const char *address, int is_producer) {
    retrial_instance *instance;
    retrial_session *session;
    retrial_mutex *mutex;
    void *ring;
    check(retrial_instance_open(address, NULL, 0600, &instance), "open");
    check(retrial_session_open(instance, is_producer ? "producer" : "consumer", &session), "session");
    check(retrial_mutex_named(instance, "ring", "ring buffer", sizeof(struct ring), &mutex, &ring), "ring");
    (is_producer ? produce : consume)(session, mutex, ring);
    check(retrial_session_close(session), "close");
    exit(0);
}

int main(int argc, char **argv) {
    retrial_instance *instance;
    retrial_mutex *mutex;
    void *data;
    if (argc != 2) {
        fprintf(stderr, "usage: ring_buffer INSTANCE\n");
        return 2;
    }
    check(retrial_instance_create(argv[1], NULL, 0600, &instance), "create");
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++) {
        if (fork() == 0) {
            run(argv[1], i < PRODUCERS);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    check(retrial_mutex_named(instance, "ring", "ring buffer", sizeof(struct ring), &mutex, &data), "ring");
    const struct ring *ring = data;
    const uint64_t sum = (uint64_t)PRODUCERS * ITEMS * (ITEMS + 1) / 2;
    printf("%d producers put %" PRIu64 " items, %d consumers took %" PRIu64 ", sum %s\n", PRODUCERS, ring->put, CONSUMERS,
           ring->taken, ring->sum == sum ? "right" : "wrong");
    failed |= ring->sum != sum;
    check(retrial_instance_close(instance), "close");
    check(retrial_instance_remove(argv[1]), "remove");
    return failed;
}
