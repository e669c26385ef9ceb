/* A recursive mutex counts its locks up to a limit, and says so when it has reached it, by every call. The count is found
 * by looking: it is what grows by one with each lock. */
#include "check.h"

enum { WORDS = sizeof(pthread_mutex_t) / sizeof(uint32_t), LOCKS = 4 };

static uint32_t *count_of(pthread_mutex_t *m) {
    uint32_t seen[LOCKS][WORDS], *count = NULL;
    for (int lock = 0; lock < LOCKS; lock++) {
        RETURNS(pthread_mutex_lock(m), 0);
        memcpy(seen[lock], m, sizeof seen[lock]);
    }
    for (int word = 0; word < WORDS; word++) {
        bool grows = true;
        for (int lock = 1; lock < LOCKS; lock++)
            grows &= seen[lock][word] == seen[lock - 1][word] + 1;
        if (grows) {
            CHECK(count == NULL);
            count = (uint32_t *)m + word;
        }
    }
    CHECK(count != NULL);
    return count;
}

int main(void) {
    for (int i = PTHREAD_MUTEX_RECURSIVE; i < KINDS; i += 4)
        for (int protocol = PTHREAD_PRIO_NONE; protocol <= PTHREAD_PRIO_INHERIT; protocol++) {
            pthread_mutex_t m;
            struct kind k = kind_at(i);
            k.protocol = protocol;
            init_kind(&m, k);
            volatile uint32_t *count = count_of(&m);
            uint32_t found = *count;
            *count = UINT32_MAX;
            RETURNS(pthread_mutex_lock(&m), EAGAIN);
            RETURNS(pthread_mutex_trylock(&m), EAGAIN);
            RETURNS(pthread_mutex_timedlock(&m, &PAST), EAGAIN);
            RETURNS(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &PAST), EAGAIN);
            *count = UINT32_MAX - 1;
            RETURNS(pthread_mutex_lock(&m), 0);
            RETURNS(pthread_mutex_lock(&m), EAGAIN);
            *count = found;
            for (int lock = 0; lock < LOCKS; lock++)
                RETURNS(pthread_mutex_unlock(&m), 0);
            RETURNS(pthread_mutex_unlock(&m), EPERM);
        }
}
