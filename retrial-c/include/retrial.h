/* retrial: mutexes in shared memory for many processes. docs/C.md is the introduction.
 *
 * A thread opens a *session* of an *instance*, and gets a *mutex* in a *mode* at a *location*. When a process
 * is killed with a mutex, the next session that gets it is answered RETRIAL_OWNER_DIED, and holds it.
 *
 * Every call that gives an int answers a code: 0 is RETRIAL_OK, all others are negative numbers of errno. After
 * any of these retrial_message() says what was found, what was expected, and what to do. A call that fails changes
 * nothing. Strings are UTF-8 and are copied. NULL is refused where nothing else is said.
 *
 * Threads: an instance and a mutex are for all threads; a session is for the thread that opened it. Calls with
 *   another thread's are answered RETRIAL_NOT_MY_SESSION, but a get of X and its release do not look for it unless
 *   RETRIAL_DEBUG is defined: they could overwrite the log record by which a killed holder is recovered. It ends with
 *   its thread; what it still holds then is recovered by the next waiter, as after a kill. Data that it protects
 *   must not be used by other threads of the process afterwards.
 * fork: a child has none of its parent's sessions, each call with one is answered RETRIAL_FORKED, but for
 *   retrial_session_close, which forgets it. It opens its own; instances stay open until it closes them, for which
 *   its parent's sessions do not count. A child by clone or _Fork, which run no handlers of fork, must not use one.
 * Signals: calls are not for signal handlers. One that uses a session inside a call of it is answered
 *   RETRIAL_REENTERED, but not inside a get of X that finds the mutex free, or its release, unless RETRIAL_DEBUG is
 *   defined. A handler must not leave either by longjmp. A signal does not end a wait.
 * Cancellation: no call is a cancellation point. Asynchronous cancellation must be off in calls.
 */
#ifndef RETRIAL_H
#define RETRIAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wzero-as-null-pointer-constant"
extern "C" {
#endif

/* Generated: RETRIAL_BLESS=1 cargo test -p retrial-c */
#define RETRIAL_ABI 0xf5705b4edeb1dee9u

/* What calls answer; retrial_strerror has the same texts. */
enum {
    RETRIAL_OK = 0, /* done */
    RETRIAL_OWNER_DIED = -130, /* the mutex is held, and an earlier holder died with it: check the data, then declare them consistent */
    RETRIAL_BUSY = -16, /* the mutex is held by another session, or the instance has open sessions */
    RETRIAL_TIMED_OUT = -110, /* the deadline has passed */
    RETRIAL_DEADLOCK = -35, /* this session holds the mutex and would wait for itself */
    RETRIAL_FORKED = -10, /* the session belongs to the parent process; open one in the child */
    RETRIAL_LOG_FULL = -37, /* the session holds as many mutexes as its log has records */
    RETRIAL_INVALID = -22, /* an argument is NULL or out of its range */
    RETRIAL_NOT_MY_SESSION = -3, /* the session is closed or belongs to another thread */
    RETRIAL_OTHER_INSTANCE = -18, /* the mutex or condition belongs to another instance than the session */
    RETRIAL_NOT_HELD = -1, /* this session does not hold the mutex */
    RETRIAL_WRONG_MODE = -95, /* the session holds the mutex in a mode that the call is not for */
    RETRIAL_GONE = -116, /* the mutex or condition was destroyed, or the instance is closed */
    RETRIAL_REENTERED = -114, /* the session is in a call already: a signal handler may not use it */
    RETRIAL_EXISTS = -17, /* an instance of this name exists */
    RETRIAL_NOT_FOUND = -2, /* there is no instance, type or parameter of this name */
    RETRIAL_PERMISSION = -13, /* the instance's file belongs to another user */
    RETRIAL_FORMAT = -71, /* the file or the header is of another version of the library */
    RETRIAL_SHAPE = -90, /* the named mutex exists with data of another size, or of another owner */
    RETRIAL_FULL = -28, /* a table of the instance is full, or no memory is left */
    RETRIAL_SYSTEM = -5, /* the operating system refused */
};

/* Modes of a get. */
enum {
    RETRIAL_S = 0,
    RETRIAL_X = 1,
    RETRIAL_LX = 2,
    RETRIAL_E = 3,
};

#define RETRIAL_NOW 0u
#define RETRIAL_FOREVER 18446744073709551615u

/* For the inlined calls below alone, as all that ends with '_'. */
#define RETRIAL_CONCERNS_ 0x17fffffu /* what in `parking` a release has to look at */

/* A mutex, for a struct of your own in memory that processes share. All bytes 0 is a free mutex: it belongs to the
 * instance of the first session that gets it, also when several get it at once. Never copied; used by no code but the
 * calls here. The memory of a mutex has to be cleared when it outlives its instance. */
typedef struct retrial_mutex {
    uint64_t word; /* who holds it */
    uint64_t parking; /* who waits */
    uint32_t kind; /* its type */
    uint32_t id; /* its number in the instance; 0 until it is bound to one */
    uint64_t gets; /* first requests granted */
    uint32_t drainer; /* who upgrades */
    uint32_t wakes; /* the futex */
    uint64_t instance; /* when its instance was created */
} retrial_mutex;

#define RETRIAL_MUTEX_INIT {0, 0, 0, 0, 0, 0, 0, 0}

/* A place in the code, registered by its name when it is first passed. `resolved` is 0 at first. */
typedef struct retrial_location {
    const char *name; /* a string that stays */
    uint64_t resolved; /* a number, and the instance */
} retrial_location;

/* What the inlined calls read of a session; the library has more behind it. */
typedef struct retrial_session {
    uintptr_t thread; /* whose it is; 1 more in a call; 0 when closed */
    uintptr_t held; /* the mutex that an inlined release can give back */
    uint64_t *log; /* its first log record */
    uint64_t expected; /* what the exchange of a get expects in the word */
    uint64_t sid; /* what it puts there */
    uint64_t instance; /* as in the mutexes of its instance; 1 when closed, and in a child of fork */
    uint64_t getting_x; /* a record of X, with the instance in place of the mutex */
    retrial_location nowhere; /* where a call without a location is */
} retrial_session;
/* End of what is generated. */

typedef struct retrial_instance retrial_instance;

/* What an instance has room for; 0 is the default of each. Memory is taken when it is used. */
typedef struct retrial_capacity {
    uint32_t sessions;  /* at a time, 1 to 1048576; 1024 */
    uint32_t mutexes;   /* 1 to 16000000; 16384 */
    uint32_t locations; /* 1 to 65535; 4096 */
    uint32_t rows;      /* what each session counts apart, 1 to 4096; 64 */
    uint64_t arena;     /* bytes for named mutexes and their data, up to 2^40; 1 MiB */
} retrial_capacity;

#define RETRIAL_TEXT_(x) #x
#define RETRIAL_TEXT(x) RETRIAL_TEXT_(x)

/* The location of this name, a literal; and the one named FILE:LINE where it stands. */
#define RETRIAL_LOCATION(literal) \
    (__extension__({ \
        static retrial_location retrial_location_here = {literal, 0}; \
        &retrial_location_here; \
    }))
#define RETRIAL_HERE RETRIAL_LOCATION(__FILE__ ":" RETRIAL_TEXT(__LINE__))

/* ---- Errors ---------------------------------------------------------------------------------------------- */

/* What a code means. Never NULL, never freed. */
const char *retrial_strerror(int code);

/* Why the calling thread's last call that was not RETRIAL_OK was not; "" before the first. Never NULL; valid until
 * the thread's next such call, at most 511 bytes. */
const char *retrial_message(void);

/* ---- Instances ------------------------------------------------------------------------------------------- */

/* `address` is a name (1 to 64 of letters, digits, '.', '_', '-') under /dev/shm, or a path with a '/'. The capacity
 * may be NULL: the defaults. `permissions` are those of the file, 0600 for oneself alone. Each that can write the
 * file is trusted.
 *
 * RETRIAL_FORMAT also means: compiled with the header of another version than the library's. */
int retrial_instance_create_abi(uint64_t abi, const char *address, const retrial_capacity *capacity,
                                mode_t permissions, retrial_instance **instance);
int retrial_instance_attach_abi(uint64_t abi, const char *address, retrial_instance **instance);
int retrial_instance_open_abi(uint64_t abi, const char *address, const retrial_capacity *capacity,
                              mode_t permissions, retrial_instance **instance);
int retrial_instance_anonymous_abi(uint64_t abi, const retrial_capacity *capacity, retrial_instance **instance);

/* Creates an instance. INVALID, EXISTS, FULL, SYSTEM, FORMAT. */
static inline int retrial_instance_create(const char *address, const retrial_capacity *capacity, mode_t permissions,
                                          retrial_instance **instance) {
    return retrial_instance_create_abi(RETRIAL_ABI, address, capacity, permissions, instance);
}

/* Takes part in one that exists. INVALID, NOT_FOUND, PERMISSION, SYSTEM, FORMAT. */
static inline int retrial_instance_attach(const char *address, retrial_instance **instance) {
    return retrial_instance_attach_abi(RETRIAL_ABI, address, instance);
}

/* Takes part in one, and creates it when there is none; of two that race, one creates. */
static inline int retrial_instance_open(const char *address, const retrial_capacity *capacity, mode_t permissions,
                                        retrial_instance **instance) {
    return retrial_instance_open_abi(RETRIAL_ABI, address, capacity, permissions, instance);
}

/* One without a name, for this process and what it forks. */
static inline int retrial_instance_anonymous(const retrial_capacity *capacity, retrial_instance **instance) {
    return retrial_instance_anonymous_abi(RETRIAL_ABI, capacity, instance);
}

/* Ends taking part: named mutexes and their data are unmapped. BUSY while sessions are open. Later calls with the
 * handle are answered GONE. */
int retrial_instance_close(retrial_instance *instance);

/* Removes the name. Processes that take part go on. */
int retrial_instance_remove(const char *address);

/* ---- Parameters ------------------------------------------------------------------------------------------ */

/* Sets a parameter, as `retrial show params` lists them: "mutex_wait_scheme" to "orbit". `type` is a mutex type, or NULL
 * for the instance; `value` is text, with the parameter's own unit or none, or NULL to take a setting back. Takes
 * effect at the next step of every wait. NOT_FOUND, INVALID. */
int retrial_param_set(retrial_instance *instance, const char *type, const char *name, const char *value);

/* The value in force, as text with its 0, into `size` bytes; 64 are enough. */
int retrial_param_get(retrial_instance *instance, const char *type, const char *name, char *value, size_t size);

/* ---- Figures --------------------------------------------------------------------------------------------- */

/* Names of the figures, by their number: "gets", "misses", "waits", "wait_ns", …, the units last; NULL after the last
 * one. docs/reference/views.md says what each counts. */
const char *retrial_figure_name(size_t index);

/* The first `count` figures of a mutex since its instance was created, in the order of their names: 0 where no session
 * has got it. `max_ns` is the longest wait. Reads the rows of every session. INVALID. */
int retrial_mutex_figures(retrial_instance *instance, retrial_mutex *mutex, uint64_t *values, size_t count);

/* The first line of the alert log after `*number`, 0 at first, which becomes the line's own: what of its text fits into
 * `size` bytes with its 0 (256 are enough), and in `*at_ns`, where that is not NULL, the real time in ns since 1970.
 * The log has the last 256 lines: numbers that are missing were lost. NOT_FOUND: there is none yet. */
int retrial_alert_next(retrial_instance *instance, uint64_t *number, uint64_t *at_ns, char *text, size_t size);

/* ---- Sessions -------------------------------------------------------------------------------------------- */

/* Makes the calling thread a session; it may have several. `name` is for the views, 32 bytes of it; NULL is none.
 * FULL when all are taken, BUSY when the table is locked by a process that was stopped, SYSTEM when pthread_key_create
 * has no key left. A destructor of a key that opens its thread's first session closes it too: the library does not
 * see the end of such a thread. */
int retrial_session_open(retrial_instance *instance, const char *name, retrial_session **session);

/* BUSY while it holds a mutex. Later calls with it are answered NOT_MY_SESSION, unless a session was opened meanwhile,
 * which may be at the same address: by this thread, or without RETRIAL_DEBUG by any. */
int retrial_session_close(retrial_session *session);

/* What the session is about, for the views: 32 bytes; NULL is nothing. */
int retrial_session_set_action(retrial_session *session, const char *action);

/* ---- The inlined part --------------------------------------------------------------------------------------
 *
 * A get of X that finds the mutex free, and its release, without a call: the same stores in the same order as in the
 * library's retrial/src/mutex/mod.rs and hold.rs, since what a killed process leaves is recovered by them. Whatever is
 * unusual is left to the calls, which look why: NULL, a session that is closed or of the parent process; a mutex of
 * another instance, not bound yet, not held by this session, busy or with a flag; a log whose first record is in use
 * by another mutex; parked sessions.
 *
 * Two mistakes are left to the calls' eyes alone: that another thread uses the session, and that a signal handler
 * does. With -DRETRIAL_DEBUG every get and release is a call, and each get looks whether the mutex is in memory that
 * its processes share. */

/* No call throws: without this a C++ program has code for it around each guard. */
#define RETRIAL_NOTHROW_ __attribute__((nothrow))

/* The same as retrial_mutex_get_until and retrial_mutex_release, for languages that do not read this header. */
RETRIAL_NOTHROW_ int retrial_mutex_get_call(retrial_session *session, retrial_mutex *mutex, int mode,
                                            uint64_t deadline_ns, retrial_location *at);
RETRIAL_NOTHROW_ int retrial_mutex_release_call(retrial_session *session, retrial_mutex *mutex);

/* Whether the mutex may be got here: INVALID where it lies in private memory of this process and was first got by
 * another process, which has a copy of it then. With RETRIAL_DEBUG each get asks. */
RETRIAL_NOTHROW_ int retrial_mutex_check(retrial_session *session, retrial_mutex *mutex);

/* What is left of an inlined release that has to wake. */
RETRIAL_NOTHROW_ int retrial_mutex_release_end(retrial_session *session, retrial_mutex *mutex);

/* The thread sanitizer sees the inlined part, and is told what the calls order. */
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define RETRIAL_TSAN_ 1
#endif
#endif
#if defined RETRIAL_TSAN_ || defined __SANITIZE_THREAD__
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define RETRIAL_TELLS_(what, at) __tsan_##what(at)
#else
#define RETRIAL_TELLS_(what, at) ((void)0)
#endif

#define RETRIAL_INLINE_ static inline __attribute__((always_inline))

enum { RETRIAL_CALL_, RETRIAL_RELEASED_, RETRIAL_WAKE_ };

#ifdef RETRIAL_DEBUG
#define RETRIAL_IS_INLINED_ 0
#else
#define RETRIAL_IS_INLINED_ 1
#endif
#define RETRIAL_LOAD_(at) __atomic_load_n(at, __ATOMIC_RELAXED)
/* The compiler keeps what is before it before it: a kill finds stores in the order of the program. */
#define RETRIAL_FENCE_() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Gets X. Whether it did; if not, nothing is changed. A session that is closed, or in a child of fork, is of no
 * instance. */
RETRIAL_INLINE_ int retrial_get_(retrial_session *session, retrial_mutex *mutex, retrial_location *at) {
    if (__builtin_expect(session == NULL || mutex == NULL, 0) ||
        __builtin_expect(RETRIAL_LOAD_(&mutex->instance) != RETRIAL_LOAD_(&session->instance), 0)) {
        return 0;
    }
    uint64_t *log = session->log, word = session->expected;
    const uint32_t id = RETRIAL_LOAD_(&mutex->id);
    const uint64_t record =
        session->getting_x ^ RETRIAL_LOAD_(at != NULL ? &at->resolved : &session->nowhere.resolved);
    /* The lower half of the record is not 0 where the place was not resolved in this instance. */
    if (__builtin_expect((uint32_t)record != 0 || id == 0, 0) || __builtin_expect(RETRIAL_LOAD_(log) != 0, 0)) {
        return 0;
    }
    /* The exchange publishes it. */
    __atomic_store_n(log, record | id, __ATOMIC_RELAXED);
    if (__builtin_expect(!__atomic_compare_exchange_n(&mutex->word, &word, session->sid, 0, __ATOMIC_ACQ_REL,
                                                      __ATOMIC_RELAXED), 0)) {
        __atomic_store_n(log, 0, __ATOMIC_RELEASE);
        return 0;
    }
    __atomic_store_n(&session->held, (uintptr_t)mutex, __ATOMIC_RELAXED);
    __atomic_store_n(&mutex->gets, RETRIAL_LOAD_(&mutex->gets) + 1, __ATOMIC_RELAXED);
    return 1;
}

/* Releases X that this session has by its first record, and nobody waits for. `held` says that it has, and the library
 * keeps it true: word, record and instance need no look, whose loads the next exchange would have to wait for.
 * RETRIAL_CALL_: nothing is changed. RETRIAL_WAKE_: it is given back, and the record is still there. */
RETRIAL_INLINE_ int retrial_release_(retrial_session *session, retrial_mutex *mutex) {
    if (__builtin_expect(session == NULL || mutex == NULL, 0) ||
        __builtin_expect(RETRIAL_LOAD_(&session->held) != (uintptr_t)mutex, 0) ||
        __builtin_expect((RETRIAL_LOAD_(&mutex->parking) & RETRIAL_CONCERNS_) != 0, 0)) {
        return RETRIAL_CALL_;
    }
    __atomic_store_n(&session->held, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&mutex->word, 0, __ATOMIC_RELEASE);
    /* A session that parks has the kernel do a barrier here: it sees the word free, or this load sees it parked. */
    RETRIAL_FENCE_();
    if (__builtin_expect((RETRIAL_LOAD_(&mutex->parking) & RETRIAL_CONCERNS_) != 0, 0)) {
        return RETRIAL_WAKE_;
    }
    RETRIAL_FENCE_();
    __atomic_store_n(session->log, 0, __ATOMIC_RELEASE);
    return RETRIAL_RELEASED_;
}

/* ---- Mutexes --------------------------------------------------------------------------------------------- */

/* The mutex of this name in the instance's memory, made when it is new, and the `size` bytes that it protects:
 * aligned to 16, all 0 when it is new. `data` may be NULL. Mapped until the instance is closed. `type` groups mutexes
 * in the views and for parameters. SHAPE when it exists with another size, or is an engine's own (a cache's);
 * FULL, INVALID. */
int retrial_mutex_named(retrial_instance *instance, const char *name, const char *type, size_t size,
                        retrial_mutex **mutex, void **data);

/* Gives a mutex in your own memory a type and a name for the views, whatever bytes were there. Not needed for one that
 * is all 0. No session may use it yet. `name` may be NULL. FULL. */
int retrial_mutex_init(retrial_instance *instance, retrial_mutex *mutex, const char *type, const char *name);

/* Gives back what the instance knows of a mutex in your own memory, before that is freed. No session may get it any
 * more; later calls are answered GONE, until it is initialised or cleared. Waits for releases that are under way, so
 * that the last user of an object may free it. BUSY while it is held, or waited for. INVALID for a named one. */
int retrial_mutex_destroy(retrial_instance *instance, retrial_mutex *mutex);

/* Gets a mutex: in mode RETRIAL_S beside others in S, RETRIAL_X alone, RETRIAL_LX the same for long, RETRIAL_E
 * beside those in S that are there already. S may be got several times, and is released as often.
 *
 * `deadline_ns` is by CLOCK_MONOTONIC: retrial_deadline_ns, retrial_deadline_of, RETRIAL_NOW for one try, or
 * RETRIAL_FOREVER. `at` may be NULL.
 *
 * RETRIAL_OWNER_DIED: the mutex IS held, and a session died with it in X, LX or E. Check and repair the data, then
 * call retrial_mutex_consistent; without that the next get is answered the same.
 * BUSY (RETRIAL_NOW), TIMED_OUT, DEADLOCK, FORKED, LOG_FULL (256 mutexes), OTHER_INSTANCE, GONE, FULL, INVALID,
 * NOT_MY_SESSION, REENTERED: the mutex is not held by this get. */
RETRIAL_INLINE_ int retrial_mutex_get_until(retrial_session *session, retrial_mutex *mutex, int mode,
                                          uint64_t deadline_ns, retrial_location *at) {
    if (RETRIAL_IS_INLINED_ && mode == RETRIAL_X && retrial_get_(session, mutex, at)) {
        return RETRIAL_OK;
    }
    int answer = RETRIAL_IS_INLINED_ ? RETRIAL_OK : retrial_mutex_check(session, mutex);
    if (answer == RETRIAL_OK) {
        answer = retrial_mutex_get_call(session, mutex, mode, deadline_ns, at);
    }
    if (answer == RETRIAL_OK || answer == RETRIAL_OWNER_DIED) {
        RETRIAL_TELLS_(acquire, mutex);
    }
    return answer;
}

/* However long it takes. */
RETRIAL_INLINE_ int retrial_mutex_get(retrial_session *session, retrial_mutex *mutex, int mode, retrial_location *at) {
    return retrial_mutex_get_until(session, mutex, mode, RETRIAL_FOREVER, at);
}

/* If that can be done at once, else BUSY. */
RETRIAL_INLINE_ int retrial_mutex_try(retrial_session *session, retrial_mutex *mutex, int mode, retrial_location *at) {
    return retrial_mutex_get_until(session, mutex, mode, RETRIAL_NOW, at);
}

/* Releases what this session holds. NOT_HELD: by another session, or by none; nothing is changed. What was got stays
 * mapped at that address until it is released. */
RETRIAL_INLINE_ int retrial_mutex_release(retrial_session *session, retrial_mutex *mutex) {
    const int state = RETRIAL_IS_INLINED_ ? retrial_release_(session, mutex) : RETRIAL_CALL_;
    if (state == RETRIAL_CALL_) {
        RETRIAL_TELLS_(release, mutex);
    }
    return state == RETRIAL_RELEASED_ ? RETRIAL_OK
           : state == RETRIAL_WAKE_   ? retrial_mutex_release_end(session, mutex)
                                      : retrial_mutex_release_call(session, mutex);
}

/* Declares the data consistent after RETRIAL_OWNER_DIED. In X, LX or E; else WRONG_MODE. */
int retrial_mutex_consistent(retrial_session *session, retrial_mutex *mutex);

/* Conversions; nobody gets in between. S to E; E to X, which waits until those in S have left; X, LX or E to S. When
 * one fails (BUSY, TIMED_OUT, DEADLOCK, WRONG_MODE, NOT_HELD) the mutex is held as before. */
int retrial_mutex_examine(retrial_session *session, retrial_mutex *mutex, uint64_t deadline_ns);
int retrial_mutex_upgrade(retrial_session *session, retrial_mutex *mutex, uint64_t deadline_ns);
int retrial_mutex_share(retrial_session *session, retrial_mutex *mutex);

/* The deadline that many ns from now; RETRIAL_FOREVER where that is beyond the clock. */
uint64_t retrial_deadline_ns(uint64_t timeout_ns);

/* The deadline that is a time of CLOCK_MONOTONIC. RETRIAL_NOW for NULL and for times below 0, RETRIAL_FOREVER for one
 * beyond the range of ns. */
struct timespec;
uint64_t retrial_deadline_of(const struct timespec *at);

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif
