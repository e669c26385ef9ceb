/* A preloaded object whose constructor forbids one system call for the rest of the process: REFUSE has its number
 * and the error that it gives from then on. By libc's own call, so that the interposer does not see the filter. */
#include "check.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

__attribute__((constructor)) static void refuse(void) {
    const char *what = getenv("REFUSE");
    unsigned call, error;
    CHECK(what != NULL && sscanf(what, "%u %u", &call, &error) == 2);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    int (*libcs)(int, ...) = (int (*)(int, ...))dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "prctl");
    CHECK(libcs != NULL);
    CHECK_EQ(libcs(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(libcs(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}
