/* Conditions in shared memory, for the mutexes of retrial.h. docs/C.md is the introduction.
 *
 * A session waits for a condition with a mutex held: the wait gives the mutex back, and gets it again when a session
 * of any process has signalled. A wait may also end without a signal, so it is made in a loop that looks at the data.
 *
 * Kills: signal with the mutex held, and no kill loses a signal, of waiters or signallers. A killed waiter takes
 * none with it. A signaller that is killed before its signal dies as a holder, which a waiter is told. Both within a
 * second. A session that is answered RETRIAL_OWNER_DIED repairs the data and signals all, since the dead may have
 * owed a signal. A session that gives the mutex back and is killed before it signals has given no signal.
 *
 * What retrial.h says of answers, threads, fork, signals and cancellation holds here too. */
#ifndef RETRIAL_COND_H
#define RETRIAL_COND_H

#include <retrial.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Generated: RETRIAL_BLESS=1 cargo test -p retrial-c */
/* A condition, for a struct of your own in memory that processes share. All bytes 0 is one that nobody waits for: it
 * belongs to the instance of the first session that uses it. Never copied; used by no code but the calls here. The
 * memory of a condition has to be cleared when it outlives its instance. */
typedef struct retrial_cond {
    uint32_t sequence; /* counts signals; the futex */
    uint32_t announced; /* counts waiters that came */
    uint32_t settled; /* those up to this one need no wake-up */
    uint32_t id; /* its number in the instance; 0 until it is bound to one */
    uint64_t instance; /* when its instance was created */
} retrial_cond;

#define RETRIAL_COND_INIT {0, 0, 0, 0, 0}
/* End of what is generated. */

/* The condition of this name in the instance's memory, made when it is new. Mapped until the instance is closed. Names
 * are those of mutexes too: SHAPE when there is a mutex of this name. FULL, INVALID. */
int retrial_cond_named(retrial_instance *instance, const char *name, retrial_cond **cond);

/* Gives a condition in your own memory a name for the views, whatever bytes were there. Not needed for one that is all
 * 0. No session may use it yet. `name` may be NULL. FULL. */
int retrial_cond_init(retrial_instance *instance, retrial_cond *cond, const char *name);

/* Gives back what the instance knows of a condition in your own memory, before that is freed. No session may use it
 * any more, and all signals must have returned; later calls are answered GONE, until it is initialised or cleared.
 * BUSY while a living session waits. INVALID for a named one. */
int retrial_cond_destroy(retrial_instance *instance, retrial_cond *cond);

/* Gives the mutex back, which the session holds in X or LX, waits until the condition is signalled, and gets the mutex
 * again in the same mode, however long that takes. `deadline_ns` as for a get of a mutex, for the event alone.
 *
 * The mutex IS held again after each of these:
 *   OK, signalled, or the wait has ended by itself; TIMED_OUT, no signal before the deadline (RETRIAL_NOW: at once);
 *   OWNER_DIED, as after a get; a signal may have come too.
 * Refused, and nothing is changed: NOT_HELD, WRONG_MODE, OTHER_INSTANCE, GONE, FULL, INVALID, FORKED, NOT_MY_SESSION,
 * REENTERED. */
int retrial_cond_wait_until(retrial_session *session, retrial_cond *cond, retrial_mutex *mutex, uint64_t deadline_ns);

/* However long it takes. */
static inline int retrial_cond_wait(retrial_session *session, retrial_cond *cond, retrial_mutex *mutex) {
    return retrial_cond_wait_until(session, cond, mutex, RETRIAL_FOREVER);
}

/* Has one of the sessions that wait look at its data, if any waits; with or without the mutex held. OTHER_INSTANCE,
 * GONE, FULL, INVALID, FORKED, NOT_MY_SESSION, REENTERED. */
int retrial_cond_signal(retrial_session *session, retrial_cond *cond);

/* The same for all that wait. */
int retrial_cond_broadcast(retrial_session *session, retrial_cond *cond);

#ifdef __cplusplus
}
#endif

#endif
