/* An allocator to be preloaded beside the library: it locks at every call, from the first one of the loader on, and its
 * locks are a mutex and a condition of the library's. What it gives is never given again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t inner = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static char *next, *end;

enum { ALIGNMENT = 16, HEADER = 16, CHUNK = 64 << 20 };

static void *take(size_t alignment, size_t size) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_lock(&inner);
    pthread_mutex_lock(&inner);
    size_t at = ((size_t)next + HEADER + alignment - 1) & ~(alignment - 1);
    if (next == NULL || size > (size_t)CHUNK || at + size > (size_t)end) {
        size_t length = size + alignment + HEADER + CHUNK;
        next = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = next + length;
        at = ((size_t)next + HEADER + alignment - 1) & ~(alignment - 1);
    }
    void *result = NULL;
    if (next != MAP_FAILED) {
        result = (void *)at;
        ((size_t *)at)[-1] = size;
        next = (char *)at + size;
    } else {
        next = end = NULL;
        errno = ENOMEM;
    }
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&mutex);
    return result;
}

void *malloc(size_t size) { return take(ALIGNMENT, size); }

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return take(ALIGNMENT, bytes); /* fresh pages are zeros */
}

void *realloc(void *old, size_t size) {
    void *result = take(ALIGNMENT, size);
    if (result != NULL && old != NULL) {
        size_t had = ((size_t *)old)[-1];
        memcpy(result, old, had < size ? had : size);
    }
    return result;
}

void free(void *old) {
    if (old == NULL)
        return;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

void *memalign(size_t alignment, size_t size) {
    return take(alignment < ALIGNMENT ? ALIGNMENT : alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    int kept = errno;
    *result = memalign(alignment, size);
    errno = kept;
    return *result == NULL ? ENOMEM : 0;
}
