/* No lock call allocates or needs the loader's lock, be it a thread's first one or one that waits: an allocator, or another
 * thread's dlopen, may be what it is called from. The argument is a library whose constructor comes back to us. */
#include <stdbool.h>

static __thread __attribute__((tls_model("initial-exec"))) bool in_call;
#define CALL(call) (in_call = true, in_call_ = (call), in_call = false, in_call_)
static __thread int in_call_;

#include "everything.h"
#include <dlfcn.h>

static _Noreturn void found(const char *what) {
    static const char text[] = " in a lock call\n";
    if (write(2, what, strlen(what)) < 0 || write(2, text, sizeof text - 1) < 0)
        _exit(2);
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

enum { THREADS = 4, ROUNDS = 20 };

static struct everything all;
static atomic_bool go, is_loading, may_go_on;

static void *uses(void *arg) {
    AWAIT(go);
    for (int round = 0; round < ROUNDS; round++)
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
    CHECK_EQ(argc, 2);
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
