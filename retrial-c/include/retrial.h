/* retrial: mutexes in shared memory for many processes. docs/C.md is the introduction.
 *
 * A thread opens a *session* of an *instance*, and gets a *mutex* in a *mode* at a *location*. When a process
 * is killed with a mutex, the next session that gets it is answered RETRIAL_OWNER_DIED, and holds it.
 *
 * Every call that gives an int answers a code: 0 is RETRIAL_OK, all others are negative numbers of errno. After
 * any of these retrial_message() says what was found, what was expected, and what to do. A call that fails changes
 * nothing. Strings are UTF-8 and are copied. NULL is refused where nothing else is said.
 *
 * Threads: an instance and a mutex are for all threads; a session is for the thread that opened it. It ends with
 *   its thread; what it still holds then is recovered by the next waiter, as after a kill. Data that it protects
 *   must not be used by other threads of the process afterwards.
 * fork: a child has none of its parent's sessions, each call with one is answered RETRIAL_FORKED. It opens its
 *   own; instances stay open.
 * Signals: calls are not for signal handlers. One that uses a session inside a call of it is answered
 *   RETRIAL_REENTERED. A signal does not end a wait.
 * Cancellation: no call is a cancellation point. Asynchronous cancellation must be off in calls.
 */
#ifndef RETRIAL_H
#define RETRIAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Generated: RETRIAL_BLESS=1 cargo test -p retrial-c */
#define RETRIAL_ABI 1

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
    RETRIAL_OTHER_INSTANCE = -18, /* the mutex belongs to another instance than the session */
    RETRIAL_NOT_HELD = -1, /* this session does not hold the mutex */
    RETRIAL_WRONG_MODE = -95, /* the session holds the mutex in a mode that the call is not for */
    RETRIAL_GONE = -116, /* the mutex was destroyed, or the instance is closed */
    RETRIAL_REENTERED = -114, /* the session is in a call already: a signal handler may not use it */
    RETRIAL_EXISTS = -17, /* an instance of this name exists */
    RETRIAL_NOT_FOUND = -2, /* there is no instance, type or parameter of this name */
    RETRIAL_PERMISSION = -13, /* the instance's file belongs to another user */
    RETRIAL_FORMAT = -71, /* the file or the header is of another version of the library */
    RETRIAL_SHAPE = -90, /* the named mutex exists with data of another size */
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

/* Words of 8 bytes in a retrial_mutex. */
#define RETRIAL_MUTEX_WORDS 6
/* End of what is generated. */

typedef struct retrial_instance retrial_instance;
typedef struct retrial_session retrial_session;

/* A mutex, for a struct of your own in memory that processes share. All bytes 0 is a free mutex: it belongs to the
 * instance of the first session that gets it, also when several get it at once. Never copied; used by no call but
 * those here. The memory of a mutex has to be cleared when it outlives its instance. */
typedef struct retrial_mutex {
    uint64_t words[RETRIAL_MUTEX_WORDS];
} retrial_mutex;

#define RETRIAL_MUTEX_INIT {{0}}

/* What an instance has room for; 0 is the default of each. Memory is taken when it is used. */
typedef struct retrial_capacity {
    uint32_t sessions;  /* at a time, 1 to 1048576; 1024 */
    uint32_t mutexes;   /* 1 to 16000000; 16384 */
    uint32_t locations; /* 1 to 65535; 4096 */
    uint32_t rows;      /* what each session counts apart, 1 to 4096; 64 */
    uint64_t arena;     /* bytes for named mutexes and their data, up to 2^40; 1 MiB */
} retrial_capacity;

/* A place in the code, registered by its name when it is first passed. `resolved` is NULL at first. */
typedef struct retrial_location {
    const char *name;
    void *resolved;
} retrial_location;

#define RETRIAL_TEXT_(x) #x
#define RETRIAL_TEXT(x) RETRIAL_TEXT_(x)

/* The location of this name, a literal; and the one named FILE:LINE where it stands. */
#define RETRIAL_LOCATION(literal) \
    (__extension__({ \
        static retrial_location retrial_location_here = {literal, NULL}; \
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

/* ---- Sessions -------------------------------------------------------------------------------------------- */

/* Makes the calling thread a session; it may have several. `name` is for the views, 32 bytes of it; NULL is none.
 * FULL when all are taken, BUSY when the table is locked by a process that was stopped. */
int retrial_session_open(retrial_instance *instance, const char *name, retrial_session **session);

/* BUSY while it holds a mutex. Later calls with it are answered NOT_MY_SESSION, unless the thread has opened another
 * session meanwhile, which may be at the same address. */
int retrial_session_close(retrial_session *session);

/* What the session is about, for the views: 32 bytes; NULL is nothing. */
int retrial_session_set_action(retrial_session *session, const char *action);

/* ---- Mutexes --------------------------------------------------------------------------------------------- */

/* The mutex of this name in the instance's memory, made when it is new, and the `size` bytes that it protects:
 * aligned to 16, all 0 when it is new. `data` may be NULL. Mapped until the instance is closed. `type` groups mutexes
 * in the views and for parameters. SHAPE when it exists with another size; FULL, INVALID. */
int retrial_mutex_named(retrial_instance *instance, const char *name, const char *type, size_t size,
                        retrial_mutex **mutex, void **data);

/* Gives a mutex in your own memory a type and a name for the views, whatever bytes were there. Not needed for one that
 * is all 0. No session may use it yet. `name` may be NULL. FULL. */
int retrial_mutex_init(retrial_instance *instance, retrial_mutex *mutex, const char *type, const char *name);

/* Gives back what the instance knows of a mutex in your own memory, before that is freed. No session may use it any
 * more; later calls are answered GONE, until it is initialised or cleared. BUSY while it is held. Not for named
 * ones. */
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
int retrial_mutex_get_until(retrial_session *session, retrial_mutex *mutex, int mode, uint64_t deadline_ns,
                            retrial_location *at);

/* However long it takes. */
static inline int retrial_mutex_get(retrial_session *session, retrial_mutex *mutex, int mode, retrial_location *at) {
    return retrial_mutex_get_until(session, mutex, mode, RETRIAL_FOREVER, at);
}

/* If that can be done at once, else BUSY. */
static inline int retrial_mutex_try(retrial_session *session, retrial_mutex *mutex, int mode, retrial_location *at) {
    return retrial_mutex_get_until(session, mutex, mode, RETRIAL_NOW, at);
}

/* Releases what this session holds. NOT_HELD: by another session, or by none; nothing is changed. */
int retrial_mutex_release(retrial_session *session, retrial_mutex *mutex);

/* Declares the data consistent after RETRIAL_OWNER_DIED. In X, LX or E; else WRONG_MODE. */
int retrial_mutex_consistent(retrial_session *session, retrial_mutex *mutex);

/* Conversions; nobody gets in between. S to E; E to X, which waits until those in S have left; X, LX or E to S. When
 * one fails (BUSY, TIMED_OUT, DEADLOCK, WRONG_MODE, NOT_HELD) the mutex is held as before. */
int retrial_mutex_examine(retrial_session *session, retrial_mutex *mutex, uint64_t deadline_ns);
int retrial_mutex_upgrade(retrial_session *session, retrial_mutex *mutex, uint64_t deadline_ns);
int retrial_mutex_share(retrial_session *session, retrial_mutex *mutex);

/* The deadline that many ns from now; RETRIAL_FOREVER where that is beyond the clock. */
uint64_t retrial_deadline_ns(uint64_t timeout_ns);

/* The deadline that is a time of CLOCK_MONOTONIC. */
static inline uint64_t retrial_deadline_of(const struct timespec *at) {
    return (uint64_t)at->tv_sec * 1000000000u + (uint64_t)at->tv_nsec;
}

#ifdef __cplusplus
}
#endif

#endif
