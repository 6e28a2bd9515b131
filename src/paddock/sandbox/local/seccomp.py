"""Seccomp policy of sandboxes: two filters that both must pass.

The first is an allow list of system calls: unknown calls fail with `ENOSYS`, so that C libraries fall back to older
ones, and refused calls with `EPERM`, as in containers. The second checks arguments: no new namespaces, no set-id or
device files, only ordinary socket families (`vsock` would reach a virtual machine's host), no terminal injection.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

ALLOWED = """
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep clone close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv
futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid
getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init
inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get
ioprio_set kcmp kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat
listen listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr
mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock
munlockall munmap name_to_handle_at nanosleep newfstatat open openat pause pidfd_open pidfd_send_signal pipe pipe2
pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv
process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg
recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select
semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address
setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit
setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socket
socketpair splice stat statfs statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time
timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid waitpid write
writev
""".split()

REFUSED = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init fanotify_mark
finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register
io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mount mount_setattr
move_mount move_pages nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise
query_module quotactl quotactl_fd reboot request_key set_mempolicy set_mempolicy_home_node setdomainname sethostname
setns settimeofday stime swapoff swapon sysfs syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86
vm86old vserver
""".split()

ROOT_CALLS = frozenset({"chroot"})
"""Calls for root mode, besides set-id bits."""
NAMESPACE_CALLS = frozenset({"unshare", "setns", "mount", "umount2", "pivot_root", "chroot"})
"""Calls for programs that sandbox themselves, such as browsers; they affect only their own namespaces."""

PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
CLONE_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
SET_ID_BITS = (0o4000, 0o2000)
MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2, "creat": 1}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}
CREATING = (os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY)
ATTRIBUTE_CALLS = frozenset({"setxattr", "lsetxattr", "fsetxattr", "setxattrat"})
"""Refused where root of a namespace could set file capabilities on mounted host directories."""
TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX."""
PUNCH_HOLE = 0x2
"""Mode bit of `fallocate` that frees space."""
PREALLOCATING = (0x40305828, 0x4030582A, 0x40305839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE: alternatives to `fallocate`."""
SOCKET_FAMILIES = frozenset({1, 2, 10, 16})
"""Unix, IPv4, IPv6, and netlink to list the sandbox's interfaces."""
LAST_FAMILY = 16
LOW_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class SystemCallPolicy:
    """Differences between the filters of sandboxes."""

    nested_namespaces: bool = False
    root_mode: bool = False
    host_files: bool = False
    """Whether files of the host can be changed. Set-id bits and file capabilities on them would be valid outside."""

    @property
    def set_id_bits(self) -> bool:
        return self.root_mode and not self.host_files and not self.nested_namespaces

    @property
    def file_capabilities(self) -> bool:
        """Allow setting attributes, which are file capabilities for root of a namespace."""
        return self.set_id_bits or not (self.root_mode or self.nested_namespaces)


@cache
def build_seccomp_filters(policy: SystemCallPolicy) -> tuple[bytes, bytes]:
    """Return both filters as BPF programs for `bwrap --add-seccomp-fd`."""
    import pyseccomp  # Imported late: only hosts that start sandboxes need libseccomp.

    return _export(_calls(pyseccomp, policy)), _export(_arguments(pyseccomp, policy))


def _calls(seccomp: Any, policy: SystemCallPolicy) -> Any:
    extra = NAMESPACE_CALLS if policy.nested_namespaces else ROOT_CALLS if policy.root_mode else frozenset[str]()
    calls = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    for name in _known(seccomp, {*ALLOWED, *extra}):
        calls.add_rule(seccomp.ALLOW, name)
    for name in _known(seccomp, {*REFUSED} - extra):
        calls.add_rule(seccomp.ERRNO(errno.EPERM), name)
    for value in PERSONALITIES:
        calls.add_rule(seccomp.ALLOW, "personality", seccomp.Arg(0, seccomp.EQ, value))
    return calls


def _arguments(seccomp: Any, policy: SystemCallPolicy) -> Any:
    refuse = seccomp.ERRNO(errno.EPERM)
    no_family = seccomp.ERRNO(errno.EAFNOSUPPORT)
    rules = seccomp.SyscallFilter(seccomp.ALLOW)

    def has_bit(argument: int, bit: int) -> Any:
        return seccomp.Arg(argument, seccomp.MASKED_EQ, bit, bit)

    for bit in () if policy.nested_namespaces else CLONE_NAMESPACES:
        rules.add_rule(refuse, "clone", has_bit(0, bit))
    for bit in () if policy.set_id_bits else SET_ID_BITS:
        for name in _known(seccomp, set(MODE_ARGUMENT)):
            rules.add_rule(refuse, name, has_bit(MODE_ARGUMENT[name], bit))
        for name in _known(seccomp, set(OPEN_ARGUMENTS)):
            flags, mode = OPEN_ARGUMENTS[name]
            for creating in CREATING:
                rules.add_rule(refuse, name, has_bit(flags, creating), has_bit(mode, bit))
    for name in _known(seccomp, set(ATTRIBUTE_CALLS)) if not policy.file_capabilities else ():
        rules.add_rule(seccomp.ERRNO(errno.EOPNOTSUPP), name)
    for request in TERMINAL_INJECTION:
        # The kernel uses 32 bits of the request; a 64-bit comparison could be bypassed with a higher bit.
        rules.add_rule(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, LOW_WORD, request))
    # Preallocation would outrun disk measuring; C libraries and databases fall back to writing.
    no_space_ahead = seccomp.ERRNO(errno.EOPNOTSUPP)
    rules.add_rule(no_space_ahead, "fallocate", seccomp.Arg(1, seccomp.MASKED_EQ, PUNCH_HOLE, 0))
    for request in PREALLOCATING:
        rules.add_rule(no_space_ahead, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, LOW_WORD, request))
    for family in set(range(LAST_FAMILY)) - SOCKET_FAMILIES:
        rules.add_rule(no_family, "socket", seccomp.Arg(0, seccomp.EQ, family))
    rules.add_rule(no_family, "socket", seccomp.Arg(0, seccomp.GT, LAST_FAMILY))
    rules.add_rule(no_family, "socket", seccomp.Arg(0, seccomp.EQ, 16), seccomp.Arg(2, seccomp.NE, 0))
    # socketpair can also create sockets of refused families or load their modules.
    rules.add_rule(no_family, "socketpair", seccomp.Arg(0, seccomp.NE, 1))
    return rules


def _known(seccomp: Any, names: set[str]) -> Iterator[str]:
    """Yield names known to this libseccomp and architecture."""
    architecture = seccomp.system_arch()
    for name in sorted(names):
        try:
            number = seccomp.resolve_syscall(architecture, name)
        except (OSError, ValueError):
            continue
        if number >= 0:
            yield name


def _export(program: Any) -> bytes:
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as sink:
            program.export_bpf(sink)
        with open(reader, "rb", closefd=False) as source:
            return source.read()
    finally:
        os.close(reader)
