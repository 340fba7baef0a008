"""Writes grade.json, the system-call profile of the grade service: `python ops/seccomp/write_profile.py`.

Docker's own profile keeps a container without capabilities from making namespaces, and bubblewrap, in which code
that arrived as data is graded, needs them. This profile is narrower than Docker's but for that: what sandboxed
code may call (`millstream.adapters.sandbox_filter`), what a Python service with sockets, files and children
calls, and the calls of bubblewrap. A test runs a hosted grader under it, without capabilities and as
nobody, and shows that bubblewrap does not start when any of its calls is taken away.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from millstream.adapters.sandbox_filter import ALLOWED, YOUNGER

PROFILE = Path(__file__).with_name("grade.json")

CHILDREN = (
    "execve execveat fork vfork kill tgkill tkill pidfd_open pidfd_send_signal prctl prlimit64 setrlimit "
    "setpgid setsid setpriority rt_sigqueueinfo rt_tgsigqueueinfo seccomp capget capset"
)
"""Starting, limiting, signalling and reaping children, and a filter of system calls for them."""
IDENTITY = "setuid setgid setgroups setresuid setresgid setreuid setregid setfsuid setfsgid"
"""Only to what the process may be anyway: it has no capabilities."""
SOCKETS = (
    "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg "
    "sendmsg sendto setsockopt shutdown socketpair"
)
OWN = (
    "chown fchown fchownat lchown fcntl fgetxattr flistxattr getxattr lgetxattr listxattr llistxattr inotify_add_watch "
    "inotify_init1 inotify_rm_watch ioctl fanotify_mark memfd_create mlock munlock sched_setaffinity "
    "sched_setscheduler signalfd4 tee vmsplice clock_nanosleep mknodat faccessat2 epoll_pwait2 shmget shmat shmdt "
    "shmctl semget semop semctl"
)
"""Files, memory and scheduling of the process itself."""
SANDBOX = ("mount", "umount2", "pivot_root", "sethostname")
"""What bubblewrap and the program in it call beside `clone`."""
FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
"""The sockets that a service needs; bubblewrap brings its loopback up by netlink."""
ASK_ONLY = 0xFFFFFFFF
"""`personality` with it changes nothing."""


def profile() -> dict[str, Any]:
    """The profile as Docker and Podman read it. `clone` is allowed with every flag: a namespace is one."""
    plain = sorted({*ALLOWED, *f"{CHILDREN} {IDENTITY} {SOCKETS} {OWN}".split()})
    younger = sorted({*YOUNGER, "clone3"} - set(plain))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            {"names": plain, "action": "SCMP_ACT_ALLOW"},
            {"names": younger, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            {"names": ["clone", *SANDBOX], "action": "SCMP_ACT_ALLOW", "comment": "bubblewrap's namespaces"},
            *(_one("socket", family, f"sockets: {name}") for name, family in FAMILIES.items()),
            _one("personality", ASK_ONLY, "which one it is"),
        ],
    }


def _one(name: str, value: int, comment: str) -> dict[str, Any]:
    """A call that is allowed with this first argument."""
    args = [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": args, "comment": comment}


def text() -> str:
    """The file."""
    return json.dumps(profile(), indent=1) + "\n"


if __name__ == "__main__":
    PROFILE.write_text(text(), encoding="utf-8")
