/* Runs a program as on a kernel before 4.14: memory that is wiped in the child of a fork, and barriers
 * on other processors, are not there. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FIELD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Goes on with the next instruction if it is that, else with the one after it. */
#define IF(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))

int main(int argc, char **argv) {
    CHECK(argc > 1);
    struct sock_filter filter[] = {
        FIELD(nr),
        IF(SYS_membarrier),
        RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        FIELD(args[2]), /* the lower half */
        IF(MADV_WIPEONFORK),
        RETURN(SECCOMP_RET_ERRNO | EINVAL),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    execv(argv[1], argv + 1);
    CHECK_EQ(errno, 0);
}
