/* Where each function that the program calls comes from: with an argument, all from the object of that name. */
#include "check.h"
#include <dlfcn.h>
#include <threads.h>

#define NAME(f) {#f, (void (*)(void))(f)}

static const struct {
    const char *name;
    void (*function)(void);
} all[] = {
    NAME(pthread_mutex_init),
    NAME(pthread_mutex_destroy),
    NAME(pthread_mutex_lock),
    NAME(pthread_mutex_trylock),
    NAME(pthread_mutex_timedlock),
    NAME(pthread_mutex_clocklock),
    NAME(pthread_mutex_unlock),
    NAME(pthread_mutex_consistent),
    NAME(pthread_cond_init),
    NAME(pthread_cond_destroy),
    NAME(pthread_cond_wait),
    NAME(pthread_cond_timedwait),
    NAME(pthread_cond_clockwait),
    NAME(pthread_cond_signal),
    NAME(pthread_cond_broadcast),
    NAME(pthread_rwlock_init),
    NAME(pthread_rwlock_destroy),
    NAME(pthread_rwlock_rdlock),
    NAME(pthread_rwlock_wrlock),
    NAME(pthread_rwlock_tryrdlock),
    NAME(pthread_rwlock_trywrlock),
    NAME(pthread_rwlock_timedrdlock),
    NAME(pthread_rwlock_timedwrlock),
    NAME(pthread_rwlock_clockrdlock),
    NAME(pthread_rwlock_clockwrlock),
    NAME(pthread_rwlock_unlock),
    NAME(pthread_spin_init),
    NAME(pthread_spin_destroy),
    NAME(pthread_spin_lock),
    NAME(pthread_spin_trylock),
    NAME(pthread_spin_unlock),
    NAME(mtx_init),
    NAME(mtx_destroy),
    NAME(mtx_lock),
    NAME(mtx_trylock),
    NAME(mtx_timedlock),
    NAME(mtx_unlock),
    NAME(cnd_init),
    NAME(cnd_destroy),
    NAME(cnd_wait),
    NAME(cnd_timedwait),
    NAME(cnd_signal),
    NAME(cnd_broadcast),
    NAME(dlopen),
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        Dl_info info;
        CHECK(dladdr((void *)all[i].function, &info) != 0);
        const char *file = strrchr(info.dli_fname, '/');
        file = file ? file + 1 : info.dli_fname;
        snprintf(about, sizeof about, "[%s is from %s] ", all[i].name, file);
        if (argc > 1)
            CHECK_EQ(strcmp(file, argv[1]), 0);
    }
}
