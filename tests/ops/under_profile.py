"""Run a program as a container's process: `under_profile.py PROFILE WITHOUT,… PROGRAM …`. No capabilities, no new
privileges, and the system calls of a profile in Docker's format, less those named.

As root one capability is kept: without it the kernel lets nobody map root into a namespace of users.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import pyseccomp

CAP_SETFCAP = 31
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION_3 = 0x20080522


def drop() -> None:
    """Give up what the process may do beyond its user."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept = (CAP_SETFCAP,) if os.getuid() == 0 else ()
    if os.getuid() == 0:
        for capability in set(range(64)) - set(kept):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    mask = sum(1 << capability for capability in kept)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    assert libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)) == 0
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0


def filter_of(profile: dict, without: set[str]) -> pyseccomp.SyscallFilter:
    """The profile as the kernel takes it."""
    made = pyseccomp.SyscallFilter(pyseccomp.ERRNO(profile["defaultErrnoRet"]))
    for rule in profile["syscalls"]:
        allowed = rule["action"] == "SCMP_ACT_ALLOW"
        action = pyseccomp.ALLOW if allowed else pyseccomp.ERRNO(rule["errnoRet"])
        compared = [pyseccomp.Arg(one["index"], pyseccomp.EQ, one["value"]) for one in rule.get("args", ())]
        assert {one["op"] for one in rule.get("args", ())} <= {"SCMP_CMP_EQ"}
        for name in set(rule["names"]) - without:
            try:
                made.add_rule(action, name, *compared)
            except OSError:  # a call that this architecture does not have
                continue
    return made


if __name__ == "__main__":
    file, without, *program = sys.argv[1:]
    found = filter_of(json.loads(Path(file).read_text(encoding="utf-8")), set(without.split(",")))
    drop()
    found.load()
    os.execvp(program[0], program)
