/* A library that was loaded and closed is not gone as long as it may be in use. The argument is its path. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    int (*lock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(library, "pthread_mutex_lock");
    int (*unlock)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(library, "pthread_mutex_unlock");
    CHECK(lock != NULL && unlock != NULL && lock != pthread_mutex_lock);
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    RETURNS(lock(&m), 0);
    CHECK_EQ(dlclose(library), 0);
    RETURNS(unlock(&m), 0);
    CHECK(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL);
}
