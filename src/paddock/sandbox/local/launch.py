"""Builds one box's file tree in private namespaces, then becomes bubblewrap.

Runs as a program of its own, `python3 -I -S launch.py`, since mount namespaces belong to a process and the server's
must not change. It is started once and forks for each plan it is sent, so that no start pays for an interpreter.
Standard library only.

Everything is mounted here, before any privilege is dropped, so that the box's user needs no way into the data
directory; and everything lives in a mount namespace that dies with the box, so that nothing can leak.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import sys
from typing import Any

CLONE_VM = 0x00000100
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID = 2
MS_NODEV = 4
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_IDMAP = 0x100000
RESOLVE_NO_MAGICLINKS = 2
RESOLVE_IN_ROOT = 0x10

# Numbers from 424 on are the same on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR = 442

OUT_OF_THE_WAY = 64
STACK = 64 * 1024
STAGE = "/tmp"  # Any directory that exists everywhere and that everyone may enter; only this process sees the mount.

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


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *arguments: Any) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), what)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
    )
    checked(result, f"mount {kind or source} on {target}")


def open_in(root: int, path: str, flags: int) -> int:
    """Open `path` as a process chrooted to `root` would, so that no symlink leads out of the box's tree."""
    how = OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    return syscall(SYS_OPENAT2, f"open {path}", root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def open_directory(root: int, path: str) -> int:
    """Open a directory below `root`, creating what is missing of it."""
    here = open_in(root, "/", os.O_PATH | os.O_DIRECTORY)
    walked = ""
    for name in path.strip("/").split("/"):
        if not name:
            continue
        walked += "/" + name
        try:
            following = open_in(root, walked, os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=here)
            following = open_in(root, walked, os.O_PATH | os.O_DIRECTORY)
        os.close(here)
        here = following
    return here


def open_mount_point(root: int, path: str, directory: bool) -> int:
    if directory:
        return open_directory(root, path)
    parent, name = os.path.split(path)
    above = open_directory(root, parent)
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=above))
    except FileExistsError:
        pass
    os.close(above)
    return open_in(root, path, os.O_PATH)


def clone_mount(source: int, recursive: bool = True) -> int:
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    return syscall(SYS_OPEN_TREE, "open_tree", source, b"", ctypes.c_uint(flags))


def set_attributes(tree: int, attributes: MountAttr, recursive: bool = True) -> None:
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    syscall(
        SYS_MOUNT_SETATTR,
        "mount_setattr",
        tree,
        b"",
        ctypes.c_uint(flags),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )


def attach(tree: int, target: int) -> None:
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    syscall(SYS_MOVE_MOUNT, "move_mount", tree, b"", target, b"", ctypes.c_uint(flags))


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def everybody_but(one: int, box: int) -> str:
    """Ids as they are, only that `one` on disk is `box` in the sandbox, which is larger than any in an image."""
    return f"0 0 {one}\n{one} {box} 1\n{one + 1} {one + 1} {box - one - 1}\n"


def owner_namespace(users: str, groups: str) -> int:
    """A user namespace for an idmapped mount: whose files on disk are whose in the sandbox.

    Somebody must live in it until it is held: a process that does nothing but wait, in our memory and on a stack of its
    own, since a copy of an interpreter takes longer than all else here.
    """
    stack = ctypes.create_string_buffer(STACK)
    top = ctypes.c_void_p((ctypes.addressof(stack) + STACK) & ~15)
    wait = ctypes.cast(libc.pause, ctypes.c_void_p)
    child = checked(libc.clone(wait, top, CLONE_NEWUSER | CLONE_VM | signal.SIGCHLD, None), "clone")
    try:
        write(f"/proc/{child}/uid_map", users)
        write(f"/proc/{child}/gid_map", groups)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def map_ids(tree: int, namespace: int) -> None:
    """Show a mounted tree by the map of a namespace, which is closed. Raises `OSError`."""
    try:
        set_attributes(tree, MountAttr(MOUNT_ATTR_IDMAP, 0, 0, namespace), recursive=False)
    finally:
        os.close(namespace)


def map_owner(tree: int, source: int, box: int) -> None:
    """Make the owner of a mounted host directory the box's user, both ways, where the file system can."""
    info = os.stat(source)
    if info.st_uid == box:
        return
    namespace = owner_namespace(f"{info.st_uid} {box} 1", f"{info.st_gid} {box} 1")
    try:
        map_ids(tree, namespace)
    except OSError:
        pass  # Not every file system can; permissions then stay as they are on disk.


def bind(root: int, item: dict[str, Any], box_uid: int | None) -> None:
    source = os.open(item["source"], os.O_PATH | os.O_CLOEXEC)
    if item["sub_path"]:
        above, source = source, open_in(source, item["sub_path"], os.O_PATH)
        os.close(above)
    tree = clone_mount(source)
    if box_uid is not None and item.get("map_owner"):
        map_owner(tree, source, box_uid)
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (MOUNT_ATTR_RDONLY if item["read_only"] else 0)
    set_attributes(tree, MountAttr(attributes, 0, 0, 0))
    target = open_mount_point(root, item["target"], stat.S_ISDIR(os.stat(source).st_mode))
    attach(tree, target)
    for descriptor in (source, tree, target):
        os.close(descriptor)


def mount_image(plan: dict[str, Any]) -> int:
    """The box's tree: its image with what the box writes over it, the image user's files in the box's user's hands."""
    box: int | None = plan["host_uid"]
    image = os.open(plan["lower"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if box is None:
        return mount_overlay(plan, image)
    try:
        root = mount_overlay(plan, handed_over(image, plan, box))
    except OSError:
        forget_attempt(plan["work"])
        root = mount_overlay(plan, image)
        give(root, plan["home"], plan["image_uid"], box)
    else:
        own(root, plan["home"], box)
    return root


def forget_attempt(work: str) -> None:
    """Before Linux 5.19 overlays refuse mapped layers, after they have marked their directory as not to be reused."""
    import shutil

    shutil.rmtree(f"{work}/work", ignore_errors=True)


def handed_over(image: int, plan: dict[str, Any], box: int) -> int:
    """The image mounted so that its user is the box's, and everybody else who they are. Raises `OSError`.

    For the kernel it must be mounted somewhere: below the box's own tree, where nobody sees it.
    """
    user, group = plan["image_uid"], plan["image_gid"]
    if not user or not group:
        raise PermissionError(1, "what belongs to root stays root's")
    tree = clone_mount(image, recursive=False)
    set_attributes(tree, MountAttr(MOUNT_ATTR_RDONLY, 0, 0, 0), recursive=False)
    map_ids(tree, owner_namespace(everybody_but(user, box), everybody_but(group, box)))
    place = os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    attach(tree, place)
    os.close(place)
    return tree


def mount_overlay(plan: dict[str, Any], image: int) -> int:
    # Paths go in as /proc/self/fd links: an overlay's option string has no way to say a colon or a comma.
    layers = {
        name: os.open(plan[name], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name in ("below", "upper", "work")
    }
    options = f"lowerdir=/proc/self/fd/{image}:/proc/self/fd/{layers['below']}"
    options += f",upperdir=/proc/self/fd/{layers['upper']},workdir=/proc/self/fd/{layers['work']}"
    if plan["host_uid"] is None:
        options += ",userxattr"
    flags = MS_NOSUID | MS_NODEV
    try:
        # No box outlives its host, so nothing of it need wait for the disk.
        mount("overlay", plan["root"], "overlay", flags, f"{options},volatile")
    except OSError:
        mount("overlay", plan["root"], "overlay", flags, options)  # Before Linux 5.10.
    for descriptor in layers.values():
        os.close(descriptor)
    return os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def write_files(root: int, files: dict[str, str]) -> None:
    for path, content in files.items():
        parent, name = os.path.split(path)
        directory = open_directory(root, parent)
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=directory)
        os.write(descriptor, content.encode())
        os.close(descriptor)
        os.close(directory)


def own(root: int, path: str, box: int) -> None:
    """Make a directory the box's user's, whoever's it was and whether or not it was there."""
    directory = open_directory(root, path)
    if os.stat(directory).st_uid != box:
        os.chown(".", box, box, dir_fd=directory)
    os.close(directory)


def give(root: int, path: str, image_uid: int, box: int) -> None:
    """Hand the image user's own files below `path` to the box's user; the overlay copies what changes owner."""
    top = open_directory(root, path)
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    os.close(top)
    pending = ["."]  # Not os.fwalk: a tree as deep as a box likes would exhaust its recursion.
    while pending:
        path = pending.pop()
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=readable)
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid == image_uid:
                    os.chown(entry.name, box, box, dir_fd=directory, follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/{entry.name}")
        os.close(directory)
    os.fchown(readable, box, box)
    os.close(readable)


def enter_namespaces(privileged: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    checked(libc.unshare(CLONE_NEWNS | (0 if privileged else CLONE_NEWUSER)), "unshare")
    if not privileged:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"0 {uid} 1")
        write("/proc/self/gid_map", f"0 {gid} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def stage(plan: dict[str, Any]) -> None:
    root = mount_image(plan)
    write_files(root, plan["files"])
    for item in plan["binds"]:
        bind(root, item, plan["host_uid"])
    tree = clone_mount(root)
    target = os.open(STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    attach(tree, target)


def drop_privileges(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def join_groups(directories: list[str]) -> None:
    """Move this process, which has one thread only, to its control groups.

    To move a whole process the kernel waits until all processors have taken note, which takes longer than all else
    here; for a thread that moves itself it need not. Version 2 has no such way for groups like these.
    """
    for directory in directories:
        name = "tasks" if os.path.exists(f"{directory}/tasks") else "cgroup.procs"
        write(f"{directory}/{name}", "0")


def prepare(plan: dict[str, Any]) -> None:
    """Make the box's tree, and become the box's user in its groups."""
    join_groups(plan["cgroups"])
    for name, value in plan["rlimits"].items():
        kind = getattr(resource, name)
        ceiling = resource.getrlimit(kind)[1]
        value = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (value, value))
    os.umask(0o022)
    privileged = plan["host_uid"] is not None
    enter_namespaces(privileged)
    stage(plan)
    os.chdir("/")
    if privileged:
        drop_privileges(plan["host_uid"])


def launch(descriptors: list[int], first_kept: int) -> None:
    """Carry out one plan: become bubblewrap on the box's tree, in a session of its own.

    Says so before; whoever waits for the word and sees the pipe end without it reads the log.
    """
    document, log, finish, *given = (
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) for descriptor in descriptors
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    kept = [os.dup2(descriptor, first_kept + place, inheritable=False) for place, descriptor in enumerate(given)]
    with open(document, "rb") as file:
        plan = json.load(file)
    try:
        prepare(plan)
        os.write(finish, b"!")
        os.setsid()
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.execv(plan["argv"][0], plan["argv"])
    except OSError as error:
        os.write(2, f"launch: {error}\n".encode())


def main(door: socket.socket, first_kept: int) -> None:
    """Fork for each plan that comes in, until the server hangs up."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(door, 16, 32, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # Some Pythons pass recv_fds' flags on to nobody.
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            door.close()
            try:
                launch(descriptors, first_kept)
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
