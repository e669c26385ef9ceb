/* No lock call allocates, needs the loader's lock or calls a function that is a cancellation point, be it a thread's first
 * one or one that waits: an allocator, or another thread's dlopen, may be what it is called from, and a thread that is
 * cancelled in pthread_mutex_lock runs its handlers without the mutex. The first argument is a library whose constructor
 * comes back to us. With a second one holders hold for long; with HIDE_DL_FIND_OBJECT in the environment the C library
 * looks like one from before 2.35. */
#include <stdbool.h>

static void hold(void);
#define HOLD() hold()
static __thread __attribute__((tls_model("initial-exec"))) bool in_call;
#define CALL(call) (in_call = true, in_call_ = (call), in_call = false, in_call_)
static __thread int in_call_;

#include "everything.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static _Noreturn void found(const char *what) {
    static const char text[] = " in a lock call\n";
    syscall(SYS_write, 2, what, strlen(what));
    syscall(SYS_write, 2, text, sizeof text - 1);
    _exit(1);
}

#define NOT_IN_A_CALL (in_call ? found(__func__) : (void)0)

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *), *__libc_memalign(size_t, size_t);

void *malloc(size_t size) { return NOT_IN_A_CALL, __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return NOT_IN_A_CALL, __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return NOT_IN_A_CALL, __libc_realloc(old, size); }
void free(void *old) { NOT_IN_A_CALL, __libc_free(old); }
void *memalign(size_t alignment, size_t size) { return NOT_IN_A_CALL, __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return NOT_IN_A_CALL, __libc_memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    NOT_IN_A_CALL;
    *result = __libc_memalign(alignment, size);
    return *result == NULL ? ENOMEM : 0;
}

/* The cancellation points that the library refers to at all (hazards.rs has the list), and some that it might. */
static int opened(int at, const char *path, int flags, va_list rest) {
    mode_t mode = va_arg(rest, mode_t); /* of no meaning where nothing is created */
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

#define OPEN(name, parameters, last, at)                                                           \
    int name parameters {                                                                          \
        NOT_IN_A_CALL;                                                                             \
        va_list rest;                                                                              \
        va_start(rest, last);                                                                      \
        int result = opened(at, path, flags, rest);                                                \
        va_end(rest);                                                                              \
        return result;                                                                             \
    }
OPEN(open, (const char *path, int flags, ...), flags, AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), flags, AT_FDCWD)
OPEN(openat, (int at, const char *path, int flags, ...), flags, at)
OPEN(openat64, (int at, const char *path, int flags, ...), flags, at)

int close(int fd) { return NOT_IN_A_CALL, (int)syscall(SYS_close, fd); }
ssize_t read(int fd, void *to, size_t len) { return NOT_IN_A_CALL, syscall(SYS_read, fd, to, len); }
ssize_t write(int fd, const void *from, size_t len) { return NOT_IN_A_CALL, syscall(SYS_write, fd, from, len); }
ssize_t writev(int fd, const struct iovec *from, int count) {
    return NOT_IN_A_CALL, syscall(SYS_writev, fd, from, count);
}
ssize_t pread64(int fd, void *to, size_t len, off64_t at) {
    return NOT_IN_A_CALL, syscall(SYS_pread64, fd, to, len, at);
}
int nanosleep(const struct timespec *asked, struct timespec *left) {
    return NOT_IN_A_CALL, (int)syscall(SYS_nanosleep, asked, left);
}
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *asked, struct timespec *left) {
    NOT_IN_A_CALL;
    return syscall(SYS_clock_nanosleep, clock, flags, asked, left) == 0 ? 0 : errno;
}
int poll(struct pollfd *fds, nfds_t count, int timeout) {
    NOT_IN_A_CALL;
    struct timespec ts = {timeout / 1000, timeout % 1000 * 1000000};
    return (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &ts, NULL, 0);
}
void pthread_testcancel(void) { NOT_IN_A_CALL; }

static void *not_there(void *handle, const char *name) { return (void)handle, (void)name, NULL; }

/* What the library's look-ups go to. */
__attribute__((used)) static void *looks_up(const char *name) {
    if (strcmp(name, "_dl_find_object") == 0 && getenv("HIDE_DL_FIND_OBJECT") != NULL)
        return (void *)not_there;
    void *real = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34");
#ifdef __x86_64__
    const char *first = "GLIBC_2.2.5";
#else
    const char *first = "GLIBC_2.17";
#endif
    return real != NULL ? real : dlvsym(RTLD_DEFAULT, "dlsym", first);
}

/* A jump: RTLD_NEXT depends on where the call returns to. */
#ifdef __x86_64__
__asm__(".globl dlsym\n.type dlsym, @function\ndlsym:\n"
        "push %rdi\npush %rsi\nsub $8, %rsp\nmov %rsi, %rdi\ncall looks_up\n"
        "add $8, %rsp\npop %rsi\npop %rdi\njmp *%rax\n.size dlsym, . - dlsym\n");
#else
__asm__(".globl dlsym\n.type dlsym, %function\ndlsym:\n"
        "stp x0, x1, [sp, #-32]!\nstr x30, [sp, #16]\nmov x0, x1\nbl looks_up\nmov x16, x0\n"
        "ldr x30, [sp, #16]\nldp x0, x1, [sp], #32\nbr x16\n.size dlsym, . - dlsym\n");
#endif

enum { THREADS = 4, ROUNDS = 20, LONG_ROUNDS = 2, HOLD_NS = 5000000 };

static bool holds_long;

static void hold(void) {
    struct timespec time = {.tv_nsec = HOLD_NS};
    if (!holds_long || syscall(SYS_nanosleep, &time, NULL) != 0)
        sched_yield();
}

static struct everything all;
static atomic_bool go, is_loading, may_go_on;

static void *uses(void *arg) {
    AWAIT(go);
    for (int round = 0; round < (holds_long ? LONG_ROUNDS : ROUNDS); round++)
        use_everything(&all);
    return arg;
}

/* Called by the library's constructor: the loader's lock is held. */
void loading(void) {
    is_loading = true;
    AWAIT(may_go_on);
}

static void *loads(void *name) {
    CHECK(dlopen(name, RTLD_NOW) != NULL);
    return NULL;
}

/* Before any library's constructor. */
static void before_all(void) {
    static struct everything early;
    init_everything(&early);
    use_everything(&early);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = before_all;

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    holds_long = argc == 3;
    init_everything(&all);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(uses, NULL);
    pthread_t loader = start(loads, argv[1]);
    AWAIT(is_loading);
    go = true;
    for (int i = 0; i < THREADS; i++)
        finish(threads[i]);
    may_go_on = true;
    finish(loader);
}
