// Threads in steps, as in PARSEC's streamcluster: some work on a share of the points, then a barrier that is a
// mutex and a condition.
// barrier THREADS SECONDS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { POINTS = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_there = PTHREAD_COND_INITIALIZER;
static int threads, arrived, is_over;
static unsigned long step;
static double end, points[POINTS], costs[POINTS];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void barrier(void) {
    pthread_mutex_lock(&mutex);
    unsigned long mine = step;
    if (++arrived == threads) {
        arrived = 0;
        step++;
        is_over = now() >= end;
        pthread_cond_broadcast(&all_there);
    } else {
        while (step == mine) pthread_cond_wait(&all_there, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void *work(void *number) {
    size_t first = (size_t)number * POINTS / threads, last = ((size_t)number + 1) * POINTS / threads;
    while (!is_over) {
        double center = points[step % POINTS];
        for (size_t i = first; i < last; i++) {
            double distance = points[i] - center;
            costs[i] += distance * distance;
        }
        barrier();
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "barrier THREADS SECONDS\n");
        return 2;
    }
    threads = atoi(arguments[1]);
    double seconds = atof(arguments[2]);
    for (int i = 0; i < POINTS; i++) points[i] = i * 0.618 - (int)(i * 0.618);
    pthread_t all[threads];
    end = now() + seconds;
    for (size_t i = 0; i < (size_t)threads; i++) pthread_create(&all[i], NULL, work, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("%.0f ops/s\n", step / seconds);
}
