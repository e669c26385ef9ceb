/* Two threads take turns, by a mutex and a condition: ThreadSanitizer, where it is in the program, has
 * nothing to report. */
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

enum { TURNS = 200 };

static void *takes_turns(void *side) {
    RETURNS(pthread_mutex_lock(&m), 0);
    while (turn < TURNS) {
        if (turn % 2 == (side != NULL)) {
            turn++;
            RETURNS(pthread_cond_signal(&cond), 0);
        } else {
            RETURNS(pthread_cond_wait(&cond, &m), 0);
        }
    }
    RETURNS(pthread_mutex_unlock(&m), 0);
    return NULL;
}

int main(void) {
    pthread_t threads[2] = {start(takes_turns, NULL), start(takes_turns, &m)};
    finish(threads[0]);
    finish(threads[1]);
    CHECK_EQ(turn, TURNS);
}
