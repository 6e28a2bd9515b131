"""Host checks for local sandboxes, with fixes."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from paddock.sandbox.base import HostCheck
from paddock.sandbox.local import network_namespace
from paddock.sandbox.local.cgroups import Cgroups
from paddock.sandbox.local.root_mode import ID_COUNT
from paddock.sandbox.local.subordinate_ids import find_subordinate_ids, user_name

GIBIBYTE = 2**30


def check_host_for_local_sandboxes(data: Path, groups: Cgroups) -> list[HostCheck]:
    return list(_findings(data, groups))


def _findings(data: Path, groups: Cgroups) -> Iterator[HostCheck]:
    for program, package in (("bwrap", "bubblewrap"), ("cp", "coreutils"), ("tar", "tar")):
        found = shutil.which(program)
        yield HostCheck(
            check=program, ok=found is not None, detail=found or "not on PATH", fix=f"apt-get install {package}"
        )
    library = ctypes.util.find_library("seccomp")
    yield HostCheck(
        check="libseccomp", ok=library is not None, detail=library or "missing", fix="apt-get install libseccomp2"
    )
    python = Path("/usr/bin/python3")
    yield HostCheck(
        check="host image",
        ok=python.exists(),
        detail="the host's /usr has python3" if python.exists() else "/usr/bin/python3 is missing",
        fix="apt-get install python3, or use a built image: paddock image build code",
        required=False,
    )
    yield _kernel()
    yield _user_namespaces()
    yield _root_mode()
    yield _network_rules()
    yield from _groups(groups)
    yield _disk(data)


def _kernel() -> HostCheck:
    return HostCheck(
        check="kernel",
        ok=_kernel_version() >= (5, 12),
        detail=os.uname().release,
        fix="Linux 5.12 or newer is needed (overlay mounts in user namespaces, mount_setattr)",
    )


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    return int(major), int(minor)


def _user_namespaces() -> HostCheck:
    command = ["bwrap", "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        ok, detail = done.returncode == 0, done.stderr.strip() or "can be made"
    except (OSError, subprocess.TimeoutExpired) as error:
        ok, detail = False, str(error)
    fix = (
        "allow them: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=28633; on Ubuntu also "
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with --privileged"
    )
    return HostCheck(check="user namespaces", ok=ok, detail=detail, fix=fix)


def _root_mode() -> HostCheck:
    """Check how many users a sandbox with `user: root` has."""
    if os.geteuid() == 0:
        major, minor = _kernel_version()
        ok = (major, minor) >= (5, 19)
        detail = f"{ID_COUNT} users in each sandbox" if ok else "the kernel cannot map the owners of image files"
        fix = "Linux 5.19 or newer is needed"
    else:
        ids = find_subordinate_ids()
        ok = ids is not None
        count = 1 if ids is None else 1 + min(ids["users"][1], ids["groups"][1])
        detail = f"{count} users in each sandbox" if ok else "root is a sandbox's only user; apt-get and su fail in it"
        fix = (
            "as root: apt-get install uidmap; "
            f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user_name(os.geteuid())}"
        )
    return HostCheck(check="root in sandboxes", ok=ok, detail=detail, fix=fix, required=False)


def _network_rules() -> HostCheck:
    """Check in a namespace whether the kernel redirects a sandbox's connections."""
    command = [
        "bwrap", "--unshare-user", "--unshare-net", "--cap-add", "CAP_NET_ADMIN", "--ro-bind", "/", "/",
        sys.executable, "-I", "-S", network_namespace.__file__,
    ]  # fmt: skip
    try:
        ok = subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        ok = False
    return HostCheck(
        check="network rules",
        ok=ok,
        detail="sandboxes can be allowed any TCP port" if ok else "sandboxes can be allowed only ports 80 and 443",
        fix="load the kernel's modules: modprobe -a nft_chain_nat nft_redir nft_ct",
        required=False,
    )


def _groups(groups: Cgroups) -> Iterator[HostCheck]:
    hierarchies = {controller: h for h in groups.hierarchies for controller in h.controllers}
    for controller, consequence in (
        ("memory", "memory is limited per process only"),
        ("cpu", "CPU time is not limited"),
        ("pids", "processes are limited by RLIMIT_NPROC"),
        ("freezer", "pausing stops processes one by one"),
    ):
        hierarchy = hierarchies.get(controller)
        problem = f"{consequence} ({groups.reason or 'not offered'})"
        yield HostCheck(
            check=f"cgroup {controller}",
            ok=hierarchy is not None,
            detail=f"v{hierarchy.version} {hierarchy.path.parent}" if hierarchy else problem,
            fix="run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes paddock serve",
            required=False,
        )


def _disk(data: Path) -> HostCheck:
    free = shutil.disk_usage(data).free
    return HostCheck(
        check="disk",
        ok=free > 5 * GIBIBYTE,
        detail=f"{free / GIBIBYTE:.1f} GiB free below {data}",
        fix="free some space, or choose another data directory with --data",
        required=False,
    )
