/* seccomp.c - once the server has started, system calls that serving does not need fail with EPERM.
 *
 * By then its files are read, its sockets listen and its threads run, so who takes over the process through a bug can start
 * no program, open no file and reach no other host. The kernel runs the filter, a program of classic BPF, at each system call
 * of each thread (seccomp(2)). A driver of CUDA goes on to use ioctl, to map memory and, sometimes, to start threads. */
#include "seccomp.h"

#include <assert.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../runtime/base/arena.h"

#if defined __x86_64__
enum { ARCH = AUDIT_ARCH_X86_64 };
#elif defined __aarch64__
enum { ARCH = AUDIT_ARCH_AARCH64 };
#else
enum { ARCH = 0 }; /* seccomp_begin refuses */
#endif

/* clang-format off */
static const unsigned allowed[] = {
    /* sockets that are open, and new connections to the one that listens */
    SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_sendmsg, SYS_close,
    SYS_shutdown, SYS_accept, SYS_accept4, SYS_getsockopt, SYS_setsockopt, SYS_getsockname, SYS_getpeername,
    SYS_fcntl, SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll,
    /* memory, threads, time */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_set_robust_list, SYS_rseq,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_membarrier, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
    SYS_clock_getres, SYS_gettimeofday, SYS_exit, SYS_exit_group,
    /* signals, what is asked about oneself, devices */
    SYS_rt_sigreturn, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack, SYS_restart_syscall, SYS_getpid,
    SYS_gettid, SYS_getrandom, SYS_getrusage, SYS_sysinfo, SYS_uname, SYS_fstat, SYS_newfstatat, SYS_lseek,
    SYS_eventfd2, SYS_ioctl,
#ifdef SYS_poll /* x86-64 also has the older forms */
    SYS_poll, SYS_epoll_wait, SYS_time,
#endif
};
/* clang-format on */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF_NOT(test, value, skip) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, 0, skip)

size_t seccomp_filter(struct sock_filter f[SECCOMP_LENGTH])
{
    const struct sock_filter head[] = {
        LOAD(arch), /* a process may use the numbers of another architecture, too */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
        LOAD(nr),
    };
    /* clone3's flags are in memory, which a filter cannot read. The C library then calls clone, which may start threads
     * and no process. */
    const struct sock_filter tail[] = {
        IF_NOT(BPF_JEQ, SYS_clone3, 1),    RETURN(SECCOMP_RET_ERRNO | ENOSYS),
        IF_NOT(BPF_JEQ, SYS_clone, 3),     LOAD(args[0]), /* of 64 bits the low half */
        IF_NOT(BPF_JSET, CLONE_THREAD, 1), RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
    };
    size_t n = 0;

    static_assert(LEN(head) + 2 * LEN(allowed) + LEN(tail) <= SECCOMP_LENGTH, "raise SECCOMP_LENGTH");
    for (size_t i = 0; i < LEN(head); i++)
        f[n++] = head[i];
    for (size_t i = 0; i < LEN(allowed); i++) {
        f[n++] = (struct sock_filter)IF_NOT(BPF_JEQ, allowed[i], 1);
        f[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < LEN(tail); i++)
        f[n++] = tail[i];
    return n;
}

bool seccomp_begin(char *error, size_t bytes)
{
    struct sock_filter f[SECCOMP_LENGTH];
    const struct sock_fprog program = {.len = (unsigned short)seccomp_filter(f), .filter = f};

    tzset(); /* the first localtime_r would open the file of the time zone */
    errno = ENOSYS;
    if (ARCH == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
        snprintf(error, bytes, "no system call is refused: the kernel takes no seccomp filter: %s", strerror(errno));
        return false;
    }
    return true;
}
