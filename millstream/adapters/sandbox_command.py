"""The command line of a sandbox: what bubblewrap shows of this machine, and as whom.

Read-only: the system's libraries, this Python with its packages, the program inside. Nothing of ``/etc``,
``/home``, ``/proc`` or ``/sys``; an empty ``/tmp`` is all that can be written. Namespaces of its own for
everything, so no network but a loopback that is down.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.errors import Unavailable

INSIDE: Final = Path(__file__).with_name("sandbox_inside.py")
PLACE: Final = "/run/inside.py"
PACKAGES: Final = "/run/packages"
NOBODY: Final = 65534
DEVICES: Final = ("null", "zero", "full", "random", "urandom")
ENVIRONMENT: Final = {
    "PATH": "/usr/bin",
    "HOME": "/tmp",  # noqa: S108 — the sandbox's own
    "LANG": "C.UTF-8",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}
"""All the variables that code sees. One thread for the libraries that would start many."""
INSTALL: Final = "install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)"
SWITCHES: Final = {
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=15000"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "give bwrap an AppArmor profile that allows userns, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""What forbids namespaces to ordinary users, the value that does, and the mend."""


def mend() -> str:
    """How to let bubblewrap start on this machine, as far as it can be seen."""
    for switch, (forbids, told) in SWITCHES.items():
        path = Path(switch)
        if path.is_file() and path.read_text().strip() == forbids:
            return told
    return "allow user namespaces; in a container start it with a seccomp profile that lets bubblewrap start"


def packages() -> tuple[str, ...]:
    """Where this Python's installed packages lie."""
    found = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return tuple(path for path in found if path and Path(path).is_dir())


def package_places() -> tuple[str, ...]:
    """Where they lie inside: an environment may stand in a folder that code must not see, such as ``/tmp``."""
    return tuple(f"{PACKAGES}/{n}" for n in range(len(packages())))


def interpreter() -> str:
    """This Python's own binary, past the links of a virtual environment."""
    return os.path.realpath(sys.executable)


def command(disk_bytes: int, control: int) -> list[str]:
    """Bubblewrap and the program in it. Raises `Unavailable` when bubblewrap is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        raise Unavailable(f"code that arrived as data runs in a sandbox only, and there is no bwrap here; {INSTALL}")
    tmp = ["--size", str(disk_bytes), "--tmpfs", "/tmp"]  # noqa: S108 — the sandbox's own
    # One capability, of the sandbox's own namespaces: a fresh /tmp and process table for each job.
    capabilities = ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    return [
        *(found, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
        *("--uid", str(NOBODY), "--gid", str(NOBODY), *capabilities),
        *(word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)),
        *shown(),
        *tmp,
        *("--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108
        *inside(str(control), PLACE),
    ]


def inside(control: str, program: str) -> list[str]:
    """The program inside: isolated from the environment, without the packages' start-up code."""
    return [interpreter(), "-I", "-S", "-B", program, control]


def shown() -> Iterator[str]:
    """What can be seen, each read-only."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)
    for folder, place in zip(packages(), package_places(), strict=True):
        yield from ("--ro-bind", folder, place)
    for device in DEVICES:
        yield from ("--dev-bind", f"/dev/{device}", f"/dev/{device}")
    yield from ("--ro-bind", str(INSIDE), PLACE)


def identities() -> list[dict[str, object]]:
    """As whom to start it, the first that works: root gives its rights up where the sandbox can do without
    them (it can't where this Python lies in a folder that only root may enter).
    """
    if os.getuid() != 0:
        return [{}]
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return [{}]
    return [{"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}, {}]
