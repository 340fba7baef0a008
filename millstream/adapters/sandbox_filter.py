"""The system calls that sandboxed code may make, as a seccomp filter (libseccomp by `pyseccomp`).

A list of what is allowed; all else answers "operation not permitted", and calls that are younger than this
list "not implemented", so that the C library falls back. There is no new process, no other program, no
network, no namespace, no key, no other process's memory and no memory outside the address-space limit
(`memfd_create`, `shmget`, `io_uring_setup`). The starting point was Docker's default profile
(github.com/moby/profiles, seccomp/default.json), cut down to what CPython, NumPy and SciPy use.
"""

from __future__ import annotations

import errno
import tempfile
from typing import Final

from millstream.errors import Unavailable

FILES: Final = (
    "access chdir chmod close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 "
    "fallocate fchdir fchmod fchmodat fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents getdents64 "
    "link linkat lseek lstat mkdir mkdirat newfstatat open openat pipe pipe2 pread64 preadv preadv2 pwrite64 "
    "pwritev pwritev2 read readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs "
    "statx symlink symlinkat sync_file_range truncate umask unlink unlinkat utime utimensat utimes write writev"
)
MEMORY: Final = "brk madvise membarrier mincore mmap mprotect mremap msync munmap"
TIME: Final = (
    "alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep pause setitimer time times"
)
SIGNALS: Final = "rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack"
WAITING: Final = (
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd eventfd2 poll ppoll pselect6 select "
    "timerfd_create timerfd_gettime timerfd_settime futex futex_waitv set_robust_list"
)
PAIRS: Final = "sendto recvfrom shutdown getsockopt getsockname getpeername"
"""What a pair of local sockets needs (`asyncio` wakes its loop by one); `socket` itself is not allowed."""
SELF: Final = (
    "arch_prctl exit exit_group getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority "
    "getrandom getresgid getresuid getrlimit getrusage getsid gettid getuid restart_syscall rseq "
    "sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam sched_getscheduler "
    "sched_yield set_tid_address sysinfo uname wait4 waitid"
)
ALLOWED: Final = tuple(name for some in (FILES, MEMORY, TIME, SIGNALS, WAITING, PAIRS, SELF) for name in some.split())
"""Calls that act on the process itself, on files it can see, or on nothing."""
YOUNGER: Final = ("clone3", "openat2", "rseq_slice", "mseal", "futex_wait", "futex_wake", "epoll_pwait2")
"""Answered with "not implemented": the C library then takes the older call."""
PR_SET_NAME, PR_GET_NAME = 15, 16
CLONE_THREAD, CLONE_NEW = 0x00010000, 0x7E020000
"""A thread of the same process; every flag that asks for a namespace."""
AF_UNIX = 1
F_DUPFD_CLOEXEC, F_GETPIPE_SZ = 1030, 1032
FCNTL: Final = (*range(8), F_DUPFD_CLOEXEC, F_GETPIPE_SZ)
"""Duplicate, read and set flags, lock; not: owners of signals, larger pipes, seals."""
IOCTL: Final = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal, how wide, how many bytes wait, blocking, close on exec; nothing that types into a terminal."""


def seccomp_filter(*, threads: bool) -> bytes:
    """The filter as a BPF program (an array of `struct sock_filter`). ``threads``: whether code may have more
    than one; it may where the number is bounded otherwise. Raises `Unavailable` without libseccomp.
    """
    try:
        import pyseccomp as seccomp
    except ImportError:
        raise Unavailable("the sandbox needs an optional part: pip install 'millstream[sandbox]'") from None
    except RuntimeError:
        raise Unavailable("the sandbox needs libseccomp; install it (Debian, Ubuntu: libseccomp2)") from None
    made = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    for name in ALLOWED:
        _rule(made, seccomp.ALLOW, name)
    for name in YOUNGER:
        _rule(made, seccomp.ERRNO(errno.ENOSYS), name)
    if threads:
        _rule(made, seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD | CLONE_NEW, CLONE_THREAD))
    # Reading a limit of one's own, not setting one.
    _rule(made, seccomp.ALLOW, "prlimit64", seccomp.Arg(0, seccomp.EQ, 0), seccomp.Arg(2, seccomp.EQ, 0))
    chosen = [("prctl", 0, (PR_SET_NAME, PR_GET_NAME)), ("socketpair", 0, (AF_UNIX,)), ("fcntl", 1, FCNTL)]
    for name, place, values in [*chosen, ("ioctl", 1, IOCTL)]:
        for value in values:
            _rule(made, seccomp.ALLOW, name, seccomp.Arg(place, seccomp.EQ, value))
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def _rule(made: object, action: int, name: str, *args: object) -> None:
    """Add a rule; a call that this machine's architecture does not have needs none."""
    try:
        made.add_rule(action, name, *args)  # type: ignore[attr-defined]
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EDOM, errno.EFAULT):
            raise
