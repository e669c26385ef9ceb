/* C++ around lock calls: a cancelled thread and one that exits leave through destructors and handlers, with the mutex
 * held while they run, and a signal's handler sees the stack of a call that waits, up to where the thread began. */
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <unwind.h>

#define CHECK(cond)                                                                                                    \
    ((cond) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond), _exit(1)))

static pthread_mutex_t m = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static std::atomic<int> destroyed, caught, ready;

struct Guard {
    Guard() { CHECK(pthread_mutex_lock(&m) == 0); }
    ~Guard() {
        CHECK(pthread_mutex_lock(&m) == EDEADLK); /* held by this thread */
        CHECK(pthread_mutex_unlock(&m) == 0);
        destroyed++;
    }
};

__attribute__((noinline)) static void waits_for_ever() {
    Guard guard;
    ready = 1;
    for (;;)
        pthread_cond_wait(&cond, &m);
}

static void *is_cancelled(void *) {
    try {
        waits_for_ever();
    } catch (abi::__forced_unwind &) {
        caught++;
        throw;
    }
    return nullptr;
}

__attribute__((noinline)) static void exits_with_guard() {
    Guard guard;
    pthread_exit(&m);
}

static void *exits(void *) {
    try {
        exits_with_guard();
    } catch (abi::__forced_unwind &) {
        caught++;
        throw;
    }
    return nullptr;
}

static void *ordinary(void *) {
    try {
        Guard guard;
        timespec past = {0, 0};
        CHECK(pthread_cond_timedwait(&cond, &m, &past) == ETIMEDOUT);
        throw 1;
    } catch (int) {
        caught++;
    }
    return nullptr;
}

static void *run(void *(*body)(void *), bool cancels) {
    pthread_t thread;
    void *result;
    ready = destroyed = caught = 0;
    CHECK(pthread_create(&thread, nullptr, body, nullptr) == 0);
    if (cancels) {
        while (!ready)
            sched_yield();
        CHECK(pthread_mutex_lock(&m) == 0); /* it waits by now */
        CHECK(pthread_mutex_unlock(&m) == 0);
        CHECK(pthread_cancel(thread) == 0);
    }
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(destroyed == 1);
    CHECK(caught == 1);
    return result;
}

/* What a handler sees. */
static std::atomic<int> in_call, calls_seen, interrupts;
static std::atomic<bool> over;
static std::atomic<void *> start_of_body;
static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *found) {
    if (_Unwind_FindEnclosingFunction(reinterpret_cast<void *>(_Unwind_GetIP(context))) == start_of_body)
        *static_cast<bool *>(found) = true;
    return _URC_NO_REASON;
}

static void handler(int) {
    int kept = errno;
    bool found = false;
    _Unwind_Backtrace(look, &found);
    if (in_call) {
        CHECK(found);
        calls_seen++;
    }
    interrupts++;
    errno = kept;
}

static pthread_mutex_t contended = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void *locks(void *) {
    while (!over) {
        in_call = 1;
        CHECK(pthread_mutex_lock(&contended) == 0);
        CHECK(pthread_mutex_unlock(&contended) == 0);
        in_call = 0;
    }
    return nullptr;
}

static void backtraces() {
    enum { INTERRUPTS = 2000 };
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
    start_of_body = reinterpret_cast<void *>(locks);
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, locks, nullptr) == 0);
    while (!in_call)
        sched_yield();
    for (int i = 0; i < INTERRUPTS; i++) {
        bool holds = i % 2;
        if (holds)
            CHECK(pthread_mutex_lock(&contended) == 0);
        for (int pause = 0; pause < i % 16; pause++)
            sched_yield();
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (interrupts <= i)
            sched_yield();
        if (holds)
            CHECK(pthread_mutex_unlock(&contended) == 0);
    }
    over = true;
    CHECK(pthread_join(thread, nullptr) == 0);
    CHECK(calls_seen > 0);
}

int main() {
    alarm(300);
    CHECK(run(is_cancelled, true) == PTHREAD_CANCELED);
    CHECK(run(exits, false) == &m);
    CHECK(run(ordinary, false) == nullptr);
    backtraces();
}
