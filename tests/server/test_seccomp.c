/* test_seccomp.c - the filter of system calls: what it says of each call, by an interpreter of BPF; and in a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/seccomp.h"

#ifdef __x86_64__
enum { ARCH = AUDIT_ARCH_X86_64, OTHER_ARCH = AUDIT_ARCH_I386 };
#else
enum { ARCH = AUDIT_ARCH_AARCH64, OTHER_ARCH = AUDIT_ARCH_ARM };
#endif

enum { ALLOW = SECCOMP_RET_ALLOW, NO = SECCOMP_RET_ERRNO | EPERM };

/* What the filter returns: the instructions that it uses, as in bpf(4). */
static unsigned verdict(unsigned arch, unsigned nr, uint64_t first)
{
    struct seccomp_data data = {.nr = (int)nr, .arch = arch, .args = {first}};
    struct sock_filter f[SECCOMP_LENGTH];
    const size_t n = seccomp_filter(f);
    unsigned a = 0;

    assert_true(n <= SECCOMP_LENGTH);
    for (size_t at = 0; at < n; at++) {
        const struct sock_filter *i = &f[at];

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS: memcpy(&a, (const char *)&data + i->k, sizeof a); break;
        case BPF_JMP | BPF_JEQ | BPF_K: at += a == i->k ? i->jt : i->jf; break;
        case BPF_JMP | BPF_JSET | BPF_K: at += a & i->k ? i->jt : i->jf; break;
        case BPF_RET | BPF_K: return i->k;
        default: fail_msg("instruction %zu has code %u", at, i->code);
        }
    }
    fail_msg("the filter of %zu instructions has no end", n);
    return 0;
}

static void what_it_says(void **state)
{
    static const unsigned yes[] = {SYS_read,  SYS_write,      SYS_recvfrom, SYS_sendto, SYS_accept4,
                                   SYS_close, SYS_epoll_ctl,  SYS_futex,    SYS_mmap,   SYS_ioctl,
                                   SYS_exit,  SYS_exit_group, SYS_getrandom};
    static const unsigned no[] = {
        SYS_execve, SYS_execveat, SYS_openat,           SYS_socket,   SYS_connect,         SYS_bind,   SYS_listen,
        SYS_ptrace, SYS_kill,     SYS_process_vm_readv, SYS_unlinkat, SYS_renameat,        SYS_mount,  SYS_seccomp,
        SYS_prctl,  SYS_setuid,   SYS_chroot,           SYS_bpf,      SYS_perf_event_open, SYS_keyctl, SYS_dup};
    const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        assert_int_equal(verdict(ARCH, yes[i], 0), ALLOW);
        assert_int_equal(verdict(OTHER_ARCH, yes[i], 0), NO);
        assert_int_equal(verdict(ARCH, yes[i] | 0x40000000u, 0), NO); /* x32's numbers */
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_int_equal(verdict(ARCH, no[i], thread), NO);
    assert_int_equal(verdict(ARCH, SYS_clone3, 0), (SECCOMP_RET_ERRNO | ENOSYS));
    assert_int_equal(verdict(ARCH, SYS_clone, thread), ALLOW);
    assert_int_equal(verdict(ARCH, SYS_clone, SIGCHLD), NO);
    assert_int_equal(verdict(ARCH, SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD), NO);
}

static int go; /* the pipe that lets the other thread try */

static void *other_thread(void *given)
{
    char byte;

    if (read(go, &byte, 1) != 1)
        return NULL;
    *(int *)given = open("/dev/null", O_RDONLY) < 0 ? errno : 0;
    return NULL;
}

static void *nothing(void *given)
{
    return given;
}

/* A time zone five hours east of Greenwich, in a file as those of /usr/share/zoneinfo (tzfile(5)). */
static bool set_zone(void)
{
    static const unsigned char zone[54] = {'T',         'Z',        'i', 'f', [39] = 1, [43] = 4, [46] = 18000 >> 8,
                                           18000 & 255, [50] = 'X', 'Y', 'Z'};
    char name[] = "/tmp/test_seccomp.XXXXXX", value[64];
    const int f = mkstemp(name);

    if (f < 0 || write(f, zone, sizeof zone) != (ssize_t)sizeof zone || unlink(name))
        return false;
    snprintf(value, sizeof value, ":/proc/self/fd/%d", f);
    return !setenv("TZ", value, 1);
}

/* The child: its exit code is the number of the first thing that is not as it should be. */
static int child(void)
{
    int ends[2], there = 0;
    char error[200] = "";
    struct tm local = {0};
    pthread_t other, later;

    if (!set_zone() || pipe(ends))
        return 1;
    go = ends[0];
    if (pthread_create(&other, NULL, other_thread, &there))
        return 1;
    if (!seccomp_begin(error, sizeof error))
        return strstr(error, "no system call is refused") ? 100 : 2;
    if (open("/dev/null", O_RDONLY) >= 0 || errno != EPERM)
        return 3;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM)
        return 4;
    if (fork() >= 0 || errno != EPERM)
        return 5;
    if (execl("/bin/true", "true", NULL) != -1 || errno != EPERM)
        return 6;
    if (write(ends[1], "x", 1) != 1 || pthread_join(other, NULL) || there != EPERM)
        return 7; /* a thread that ran before is held, too */
    if (pthread_create(&later, NULL, nothing, NULL) || pthread_join(later, NULL))
        return 8;
    free(malloc(100 << 20));
    if (!localtime_r(&(time_t){0}, &local) || local.tm_gmtoff != 18000)
        return 10; /* chat templates write the date */
    return seccomp_begin(error, sizeof error) || !strstr(error, "Operation not permitted") ? 9 : 0;
}

static void in_a_process(void **state)
{
    int status = 0;
    const pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (!pid)
        _exit(child());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 100)
        skip(); /* the kernel takes no filter */
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_it_says), cmocka_unit_test(in_a_process)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
