"""Calls into the kernel that Python lacks: mounts, namespaces and id maps. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

CLONE_VM = 0x00000100
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8
MOUNT_ATTR_IDMAP = 0x100000
RESOLVE_NO_MAGICLINKS = 2
RESOLVE_IN_ROOT = 0x10

# Numbers from 424 on are the same on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR = 442

STACK = 64 * 1024

libc = ctypes.CDLL(None, use_errno=True)


class OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def check_syscall_result(result: int, operation: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
    return result


def call_syscall(number: int, operation: str, *arguments: Any) -> int:
    return check_syscall_result(libc.syscall(ctypes.c_long(number), *arguments), operation)


def mount_filesystem(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
    )
    check_syscall_result(result, f"mount {kind or source} on {target}")


def open_within_root(root: int, path: str, flags: int) -> int:
    """Open `path` as if chrooted to `root`, so that no symlink leads out of the tree."""
    how = OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    return call_syscall(SYS_OPENAT2, f"open {path}", root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def clone_mount(source: int, recursive: bool = True) -> int:
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    return call_syscall(SYS_OPEN_TREE, "open_tree", source, b"", ctypes.c_uint(flags))


def set_mount_attributes(tree: int, attributes: MountAttr, recursive: bool = True) -> None:
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    call_syscall(
        SYS_MOUNT_SETATTR,
        "mount_setattr",
        tree,
        b"",
        ctypes.c_uint(flags),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def attach_mount(tree: int, target: int) -> None:
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    call_syscall(SYS_MOVE_MOUNT, "move_mount", tree, b"", target, b"", ctypes.c_uint(flags))


def write_host_file(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def create_idmap_namespace(users: str, groups: str) -> int:
    """Create a user namespace for an idmapped mount, which maps owners on disk to owners inside.

    A helper process keeps it alive until it is opened. It shares our memory with a stack of its own, because copying an
    interpreter would take longer than all other steps.
    """
    stack = ctypes.create_string_buffer(STACK)
    top = ctypes.c_void_p((ctypes.addressof(stack) + STACK) & ~15)
    wait = ctypes.cast(libc.pause, ctypes.c_void_p)
    child = check_syscall_result(libc.clone(wait, top, CLONE_NEWUSER | CLONE_VM | signal.SIGCHLD, None), "clone")
    try:
        write_host_file(f"/proc/{child}/uid_map", users)
        write_host_file(f"/proc/{child}/gid_map", groups)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def apply_id_map(tree: int, namespace: int) -> None:
    """Apply a namespace's id map to a mounted tree and close the namespace. Raises `OSError`."""
    try:
        set_mount_attributes(tree, MountAttr(MOUNT_ATTR_IDMAP, 0, 0, namespace), recursive=False)
    finally:
        os.close(namespace)
