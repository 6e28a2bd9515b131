"""Start of a sandbox in root mode: its first process is root of a user namespace with a range of ids.

bubblewrap sets `no_new_privs`, with which set-uid programs do not work, so the launcher process starts these sandboxes
itself. All namespaces but the user namespace belong to the launcher's, so that the sandbox's root has no capability
over mounts, network, host name and processes. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, NoReturn

from paddock.sandbox.local.kernel_calls import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MNT_DETACH,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REMOUNT,
    MountAttr,
    attach_mount,
    check_syscall_result,
    clone_mount,
    libc,
    mount_filesystem,
    set_mount_attributes,
    write_host_file,
)

ID_COUNT = 65_536
"""Ids of a sandbox in root mode."""
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 27, 29, 31)
"""Capabilities in the sandbox's user namespace: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
NET_BIND_SERVICE, SYS_CHROOT, MKNOD, AUDIT_WRITE and SETFCAP."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore", "ptmx": "pts/ptmx",
}  # fmt: skip

PROGRAM_SEARCH_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"

MONITOR_NAME = b"monitor"

PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
FILTER_INSTRUCTION_SIZE = 8
CAPABILITY_VERSION_3 = 0x20080522
HIGHEST_CAPABILITY = 63


class SeccompProgramStruct(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


class CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class CapabilityData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def unshare_with_subordinate_ids(flags: int, uid: int, gid: int, ids: dict[str, tuple[int, int]]) -> None:
    """Enter namespaces in which the ordinary user is root and its subordinate ids begin at 1.

    A child outside runs the set-uid programs that may map them.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    process = os.getpid()
    helper = os.fork()
    if not helper:
        os.close(writer)
        done = os.read(reader, 1) == b"!" and map_subordinate_ids(process, uid, gid, ids)
        os._exit(0 if done else 1)
    os.close(reader)
    check_syscall_result(libc.unshare(flags), "unshare")
    os.write(writer, b"!")
    os.close(writer)
    if os.waitpid(helper, 0)[1]:
        raise PermissionError(1, "the subordinate ids of this user could not be mapped")


def map_subordinate_ids(process: int, uid: int, gid: int, ids: dict[str, tuple[int, int]]) -> bool:
    for program, own, (first, count) in (("newuidmap", uid, ids["users"]), ("newgidmap", gid, ids["groups"])):
        words = [program, *map(str, (process, 0, own, 1, 1, first, count))]
        if os.waitpid(os.posix_spawnp(program, words, {"PATH": PROGRAM_SEARCH_PATH}), 0)[1]:
            return False
    return True


def format_id_map(first: int | None, count: int) -> str:
    """Return the map of a sandbox's user namespace; `first` is None in the namespace of an ordinary user."""
    if first is not None:
        return f"0 {first} {count}\n"
    # The kernel wants each line within one of the namespace above, where root is the user itself.
    return "0 0 1\n" + (f"1 1 {count - 1}\n" if count > 1 else "")


def fork_first_process(report: int) -> int:
    """Fork the sandbox's first process into new namespaces; return its pid, or 0 in it.

    It continues after its pid is in the report, so that `remove` always finds it.
    """
    namespaces = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    check_syscall_result(libc.unshare(namespaces), "unshare")
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child:
        os.close(reader)
        append_to_report(report, {"child-pid": child, "pid-namespace": os.stat(f"/proc/{child}/ns/pid").st_ino})
        os.write(writer, b"!")
        os.close(writer)
        return child
    os.close(writer)
    if os.read(reader, 1) != b"!":
        os._exit(1)
    os.close(reader)
    return 0


def append_to_report(report: int, facts: dict[str, int]) -> None:
    os.write(report, json.dumps(facts).encode() + b"\n")


def monitor_first_process(child: int, report: int, log: int, uid: int | None) -> NoReturn:
    """Wait without privileges for the end of the first process, and report its exit code as bubblewrap does."""
    os.dup2(report, 3)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    set_capabilities(())
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_NAME, MONITOR_NAME)
    _, status = os.waitpid(child, 0)
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    append_to_report(3, {"exit-code": code})
    os._exit(code)


def enter_root(root: int, hostname: str, shared_memory: int, owner: int | None) -> None:
    """Make the finished tree the root of the mount namespace, with /proc and /dev."""
    devices = {name: clone_device(name) for name in DEVICES}
    os.fchdir(root)
    check_syscall_result(libc.pivot_root(b".", b"."), "pivot_root")
    # The old root stays mounted until the new /proc is, which the kernel requires of an ordinary user.
    mount_filesystem("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    ownership = "" if owner is None else f",uid={owner},gid={owner}"
    mount_filesystem("tmpfs", "/dev", "tmpfs", MS_NOSUID, f"mode=0755,size=1m{ownership}")
    for name, device in devices.items():
        target = os.open(f"/dev/{name}", os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_CLOEXEC, 0o666)
        attach_mount(device, target)
        os.close(target)
        os.close(device)
    for name, destination in DEVICE_LINKS.items():
        os.symlink(destination, f"/dev/{name}")
    os.mkdir("/dev/pts")
    os.mkdir("/dev/shm")
    mount_filesystem("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    options = f"mode=1777,size={shared_memory}{ownership}"
    mount_filesystem("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options)
    mount_filesystem("none", "/dev", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)
    host = hostname.encode(errors="surrogateescape")
    check_syscall_result(libc.sethostname(host, len(host)), "sethostname")
    check_syscall_result(libc.umount2(b".", MNT_DETACH), "unmount the host's root")
    os.chdir("/")


def clone_device(name: str) -> int:
    device = os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)
    tree = clone_mount(device, recursive=False)
    set_mount_attributes(tree, MountAttr(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, 0, 0), recursive=False)
    os.close(device)
    return tree


def become_namespace_root(namespace: int, filters: list[bytes], nested_namespaces: bool) -> None:
    """Enter the user namespace as its root, with system call filters and without most capabilities."""
    check_syscall_result(libc.setns(namespace, CLONE_NEWUSER), "setns")
    os.close(namespace)
    try:
        os.setgroups([])
    except PermissionError:
        pass  # With a single id there are no groups.
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    if not nested_namespaces:
        write_host_file("/proc/sys/user/max_user_namespaces", "0")
    for program in filters:
        load_system_call_filter(program)
    for capability in range(HIGHEST_CAPABILITY + 1):
        if capability not in CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # Fails for capabilities that the kernel does not know.
    set_capabilities(CAPABILITIES)


def load_system_call_filter(program: bytes) -> None:
    """Load a filter with `CAP_SYS_ADMIN` instead of `no_new_privs`."""
    structure = SeccompProgramStruct(len(program) // FILTER_INSTRUCTION_SIZE, program)
    result = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(structure), 0, 0)
    check_syscall_result(result, "load the system call filter")


def set_capabilities(capabilities: tuple[int, ...]) -> None:
    data = (CapabilityData * 2)()
    for capability in capabilities:
        data[capability // 32].effective |= 1 << capability % 32
        data[capability // 32].permitted |= 1 << capability % 32
    header = CapabilityHeader(CAPABILITY_VERSION_3, 0)
    check_syscall_result(libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def read_filters(descriptors: list[int]) -> list[bytes]:
    programs = []
    for descriptor in descriptors:
        with open(descriptor, "rb") as file:
            programs.append(file.read())
    return programs


def start_first_process(plan: dict[str, Any], root: int, namespace: int) -> None:
    """Fork and set up the first process up to its `exec`; the calling process becomes its monitor and never returns."""
    settings = plan["root_mode"]
    child = fork_first_process(settings["report"])
    if child:
        monitor_first_process(child, settings["report"], 1, plan["host_uid"])
    filters = read_filters(settings["filters"])
    enter_root(root, settings["hostname"], settings["shared_memory"], plan["host_uid"])
    become_namespace_root(namespace, filters, settings["nested_namespaces"])
    os.chdir(settings["directory"])
