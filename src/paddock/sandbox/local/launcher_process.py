"""Build a sandbox's file tree in private namespaces, then exec bubblewrap.

Runs as a separate program, `python3 -I -S launcher_process.py`, because mount namespaces belong to a process and the
server's must not change. It starts once and forks for each plan, so that no sandbox start pays for an interpreter.
Standard library and `network_namespace` only.

Mounts happen here, before privileges are dropped, so that the sandbox's user needs no access to the data directory.
They live in a mount namespace that ends with the sandbox, so that nothing leaks.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import sys
from typing import Any

if __name__ == "__main__":
    sys.path.append(sys.argv[3])  # Without the site module, only the standard library is found.

from paddock.sandbox.local.network_namespace import configure_network

CLONE_VM = 0x00000100
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
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

FIRST_UNUSED_DESCRIPTOR = 64
STACK = 64 * 1024
STAGE = "/tmp"  # Any directory that always exists and is world-accessible; only this process sees the mount.

UNFIT = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP)

libc = ctypes.CDLL(None, use_errno=True)


class UnfitMountTarget(Exception):
    """The image has an entry at a mount's target that a mount cannot cover."""


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


def open_or_create_directory(root: int, path: str) -> int:
    """Open a directory below `root`, creating missing parts."""
    current = open_within_root(root, "/", os.O_PATH | os.O_DIRECTORY)
    walked = ""
    for name in path.strip("/").split("/"):
        if not name:
            continue
        walked += "/" + name
        try:
            child = open_within_root(root, walked, os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=current)
            child = open_within_root(root, walked, os.O_PATH | os.O_DIRECTORY)
        os.close(current)
        current = child
    return current


def open_mount_point(root: int, path: str, directory: bool) -> int:
    if directory:
        return open_or_create_directory(root, path)
    parent, name = os.path.split(path)
    above = open_or_create_directory(root, parent)
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=above))
    except FileExistsError:
        pass
    os.close(above)
    return open_within_root(root, path, os.O_PATH)


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


def format_idmap_for_owner(one: int, sandbox: int) -> str:
    """Return an identity id map in which `one` on disk is `sandbox` inside; `sandbox` exceeds all ids of images."""
    return f"0 0 {one}\n{one} {sandbox} 1\n{one + 1} {one + 1} {sandbox - one - 1}\n"


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


def map_owner(tree: int, source: int, sandbox: int) -> None:
    """Map the owner of a mounted host directory to the sandbox user and back, if the file system supports it."""
    info = os.stat(source)
    if info.st_uid == sandbox:
        return
    namespace = create_idmap_namespace(f"{info.st_uid} {sandbox} 1", f"{info.st_gid} {sandbox} 1")
    try:
        apply_id_map(tree, namespace)
    except OSError:
        pass  # Unsupported by some file systems, which keep permissions as on disk.


def bind_mount(root: int, item: dict[str, Any], sandbox_uid: int | None) -> None:
    source = os.open(item["source"], os.O_PATH | os.O_CLOEXEC)
    if item["sub_path"]:
        above, source = source, open_within_root(source, item["sub_path"], os.O_PATH)
        os.close(above)
    tree = clone_mount(source)
    if sandbox_uid is not None and item.get("map_owner"):
        map_owner(tree, source, sandbox_uid)
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (MOUNT_ATTR_RDONLY if item["read_only"] else 0)
    set_mount_attributes(tree, MountAttr(attributes, 0, 0, 0))
    try:
        target = open_mount_point(root, item["target"], stat.S_ISDIR(os.stat(source).st_mode))
        attach_mount(tree, target)
    except OSError as error:
        if error.errno in UNFIT and item.get("map_owner"):  # A requested mount must not fail silently.
            raise UnfitMountTarget(f"{item['target']}: {os.strerror(error.errno)}") from None
        raise
    for descriptor in (source, tree, target):
        os.close(descriptor)


def mount_sandbox_root(plan: dict[str, Any]) -> int:
    """Mount the sandbox's root: image plus writable layer, with the image user's files owned by the sandbox user."""
    sandbox: int | None = plan["host_uid"]
    image = os.open(plan["lower"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if sandbox is None:
        return mount_overlay(plan, image)
    try:
        root = mount_overlay(plan, copy_with_mapped_owner(image, plan, sandbox))
    except OSError:
        clear_overlay_workdir(plan["work"])
        root = mount_overlay(plan, image)
        chown_to_sandbox_user(root, plan["home"], plan["image_uid"], sandbox)
    else:
        make_directory_for_sandbox_user(root, plan["home"], sandbox)
    return root


def clear_overlay_workdir(work: str) -> None:
    """Remove the mark that overlays before Linux 5.19 leave after refusing idmapped layers."""
    import shutil

    shutil.rmtree(f"{work}/work", ignore_errors=True)


def copy_with_mapped_owner(image: int, plan: dict[str, Any], sandbox: int) -> int:
    """Mount the image with its user mapped to the sandbox user; other owners are unchanged. Raises `OSError`.

    The kernel requires a mount point, so it is hidden below the sandbox's own tree.
    """
    user, group = plan["image_uid"], plan["image_gid"]
    if not user or not group:
        raise PermissionError(1, "files of root cannot be handed over")
    tree = clone_mount(image, recursive=False)
    set_mount_attributes(tree, MountAttr(MOUNT_ATTR_RDONLY, 0, 0, 0), recursive=False)
    apply_id_map(
        tree, create_idmap_namespace(format_idmap_for_owner(user, sandbox), format_idmap_for_owner(group, sandbox))
    )
    mount_point = os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    attach_mount(tree, mount_point)
    os.close(mount_point)
    return tree


def mount_overlay(plan: dict[str, Any], image: int) -> int:
    # Use /proc/self/fd paths, because overlay options cannot escape colons and commas.
    layers = {
        name: os.open(plan[name], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name in ("below", "upper", "work")
    }
    options = f"lowerdir=/proc/self/fd/{image}:/proc/self/fd/{layers['below']}"
    options += f",upperdir=/proc/self/fd/{layers['upper']},workdir=/proc/self/fd/{layers['work']}"
    if plan["host_uid"] is None:
        options += ",userxattr"
    flags = MS_NOSUID | MS_NODEV
    try:
        # Sandboxes end with their host, so their writes need not be flushed.
        mount_filesystem("overlay", plan["root"], "overlay", flags, f"{options},volatile")
    except OSError:
        mount_filesystem("overlay", plan["root"], "overlay", flags, options)  # Before Linux 5.10.
    for descriptor in layers.values():
        os.close(descriptor)
    return os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def write_plan_files(root: int, files: dict[str, str]) -> None:
    for path, content in files.items():
        parent, name = os.path.split(path)
        directory = open_or_create_directory(root, parent)
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=directory)
        os.write(descriptor, content.encode())
        os.close(descriptor)
        os.close(directory)


def make_directory_for_sandbox_user(root: int, path: str, sandbox: int) -> None:
    """Create the directory if missing and chown it to the sandbox user."""
    directory = open_or_create_directory(root, path)
    if os.stat(directory).st_uid != sandbox:
        os.chown(".", sandbox, sandbox, dir_fd=directory)
    os.close(directory)


def chown_to_sandbox_user(root: int, path: str, image_uid: int, sandbox: int) -> None:
    """Chown the image user's files below `path` to the sandbox user; the overlay copies them up."""
    top = open_or_create_directory(root, path)
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    os.close(top)
    pending = ["."]  # Not os.fwalk, because a deep tree would exhaust its recursion.
    while pending:
        path = pending.pop()
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=readable)
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid == image_uid:
                    os.chown(entry.name, sandbox, sandbox, dir_fd=directory, follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/{entry.name}")
        os.close(directory)
    os.fchown(readable, sandbox, sandbox)
    os.close(readable)


def enter_namespaces(privileged: bool) -> None:
    """Enter new mount and network namespaces, and a user namespace unless privileged.

    They belong to a user namespace above the sandbox's, so that no program of the sandbox has power over them.
    """
    uid, gid = os.getuid(), os.getgid()
    check_syscall_result(libc.unshare(CLONE_NEWNS | CLONE_NEWNET | (0 if privileged else CLONE_NEWUSER)), "unshare")
    if not privileged:
        write_host_file("/proc/self/setgroups", "deny")
        write_host_file("/proc/self/uid_map", f"0 {uid} 1")
        write_host_file("/proc/self/gid_map", f"0 {gid} 1")
    mount_filesystem("none", "/", None, MS_REC | MS_PRIVATE)


def build_file_tree(plan: dict[str, Any]) -> None:
    root = mount_sandbox_root(plan)
    write_plan_files(root, plan["files"])
    for item in plan["binds"]:
        bind_mount(root, item, plan["host_uid"])
    tree = clone_mount(root)
    target = os.open(STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    attach_mount(tree, target)


def drop_privileges(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def join_cgroups(directories: list[str]) -> None:
    """Move this single-threaded process to its control groups.

    In version 1 a thread moves itself, because moving a process waits for an RCU grace period, which takes longer than
    all other steps. Version 2 has no such shortcut for these groups.
    """
    for directory in directories:
        name = "tasks" if os.path.exists(f"{directory}/tasks") else "cgroup.procs"
        write_host_file(f"{directory}/{name}", "0")


def prepare_sandbox(plan: dict[str, Any]) -> bool:
    """Build the sandbox's tree and network, join its groups and switch to its user.

    Returns False if the kernel refuses to redirect connections.
    """
    join_cgroups(plan["cgroups"])
    for name, value in plan["rlimits"].items():
        kind = getattr(resource, name)
        ceiling = resource.getrlimit(kind)[1]
        value = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (value, value))
    os.umask(0o022)
    privileged = plan["host_uid"] is not None
    enter_namespaces(privileged)
    redirected = configure_network()
    build_file_tree(plan)
    os.chdir("/")
    if privileged:
        drop_privileges(plan["host_uid"])
    return redirected


def disable_redirection(daemon_config: int) -> None:
    """Change the daemon's configuration: it must listen on the real ports."""
    with open(daemon_config, "r+", closefd=False) as file:
        config = json.load(file)
        config["network"]["redirected"] = False
        file.seek(0)
        file.truncate()
        json.dump(config, file)
        file.flush()
        file.seek(0)


def launch_sandbox(descriptors: list[int], first_passed: int) -> None:
    """Execute one plan: exec bubblewrap on the sandbox's tree in a new session.

    Writes to the pipe before: "!", or "?" if connections are not redirected, or the reason why a mount's target is
    unfit. Other failures are in the log.
    """
    document, log, result_writer, *to_pass = (
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_UNUSED_DESCRIPTOR) for descriptor in descriptors
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    passed = [os.dup2(descriptor, first_passed + index, inheritable=False) for index, descriptor in enumerate(to_pass)]
    with open(document, "rb") as file:
        plan = json.load(file)
    try:
        redirected = prepare_sandbox(plan)
        if not redirected:
            disable_redirection(plan["daemon_config"])
        os.write(result_writer, b"!" if redirected else b"?")
        os.setsid()
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        os.execv(plan["argv"][0], plan["argv"])
    except UnfitMountTarget as error:
        os.write(result_writer, str(error).encode())
    except OSError as error:
        os.write(2, f"launch: {error}\n".encode())


def main(plan_socket: socket.socket, first_passed: int) -> None:
    """Fork for each received plan until the server disconnects."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(plan_socket, 16, 32, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # Some Pythons ignore the flags of recv_fds.
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            plan_socket.close()
            try:
                launch_sandbox(descriptors, first_passed)
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
