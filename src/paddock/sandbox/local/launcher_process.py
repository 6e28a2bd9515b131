"""Build a sandbox's file tree in private namespaces, then exec bubblewrap.

Runs as a separate program, `python3 -I -S launcher_process.py`, because mount namespaces belong to a process and the
server's must not change. It starts once and forks for each plan, so that no sandbox start pays for an interpreter.
Standard library and modules that need no more than that.

Mounts happen here, before privileges are dropped, so that the sandbox's user needs no access to the data directory.
They live in a mount namespace that ends with the sandbox, so that nothing leaks.
"""

from __future__ import annotations

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

from paddock.sandbox.local import root_mode
from paddock.sandbox.local.kernel_calls import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    MountAttr,
    apply_id_map,
    attach_mount,
    check_syscall_result,
    clone_mount,
    create_idmap_namespace,
    libc,
    mount_filesystem,
    open_within_root,
    set_mount_attributes,
    write_host_file,
)
from paddock.sandbox.local.network_namespace import configure_network

FIRST_UNUSED_DESCRIPTOR = 64
STAGE = "/tmp"  # Any directory that always exists and is world-accessible; only this process sees the mount.

UNFIT = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP)


class UnfitMountTarget(Exception):
    """The image has an entry at a mount's target that a mount cannot cover."""


def open_or_create_directory(root: int, path: str, owner: int | None = None) -> int:
    """Open a directory below `root`, creating missing parts; `owner` is theirs, if given."""
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
            if owner is not None:
                os.chown(name, owner, owner, dir_fd=current, follow_symlinks=False)
            child = open_within_root(root, walked, os.O_PATH | os.O_DIRECTORY)
        os.close(current)
        current = child
    return current


def open_mount_point(root: int, path: str, directory: bool, owner: int | None) -> int:
    if directory:
        return open_or_create_directory(root, path, owner)
    parent, name = os.path.split(path)
    above = open_or_create_directory(root, parent, owner)
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=above))
    except FileExistsError:
        pass
    os.close(above)
    return open_within_root(root, path, os.O_PATH)


def format_idmap_for_owner(one: int, sandbox: int) -> str:
    """Return an identity id map in which `one` on disk is `sandbox` inside; `sandbox` exceeds all ids of images."""
    return f"0 0 {one}\n{one} {sandbox} 1\n{one + 1} {one + 1} {sandbox - one - 1}\n"


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


def bind_mount(root: int, item: dict[str, Any], sandbox_uid: int | None, owner: int | None) -> None:
    """Mount a host directory or file; `owner` is that of created mount points."""
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
        target = open_mount_point(root, item["target"], stat.S_ISDIR(os.stat(source).st_mode), owner)
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


def mount_root_for_range(plan: dict[str, Any], namespace: int) -> int:
    """Mount the sandbox's root for root mode: ids of image and mount points are mapped to the sandbox's range."""
    sandbox: int | None = plan["host_uid"]
    image, below = (os.open(plan[name], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name in ("lower", "below"))
    try:
        if sandbox is not None:
            image, below = (hide_mapped_copy(plan, layer, os.dup(namespace)) for layer in (image, below))
        root = mount_overlay(plan, image, below, flags=MS_NODEV)
    except OSError as error:
        message = f"root mode needs Linux 5.19, for overlays with id maps: {error.strerror}"
        raise OSError(error.errno, message) from None
    os.close(open_or_create_directory(root, plan["home"], sandbox))
    return root


def clear_overlay_workdir(work: str) -> None:
    """Remove the mark that overlays before Linux 5.19 leave after refusing idmapped layers."""
    import shutil

    shutil.rmtree(f"{work}/work", ignore_errors=True)


def copy_with_mapped_owner(image: int, plan: dict[str, Any], sandbox: int) -> int:
    """Mount the image with its user mapped to the sandbox user; other owners are unchanged. Raises `OSError`."""
    user, group = plan["image_uid"], plan["image_gid"]
    if not user or not group:
        raise PermissionError(1, "files of root cannot be handed over")
    owners = create_idmap_namespace(format_idmap_for_owner(user, sandbox), format_idmap_for_owner(group, sandbox))
    return hide_mapped_copy(plan, image, owners)


def hide_mapped_copy(plan: dict[str, Any], layer: int, namespace: int) -> int:
    """Mount a layer read-only with mapped owners. Raises `OSError`.

    The kernel requires a mount point, so it is hidden below the sandbox's own tree.
    """
    tree = clone_mount(layer, recursive=False)
    set_mount_attributes(tree, MountAttr(MOUNT_ATTR_RDONLY, 0, 0, 0), recursive=False)
    apply_id_map(tree, namespace)
    mount_point = os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    attach_mount(tree, mount_point)
    os.close(mount_point)
    return tree


def mount_overlay(plan: dict[str, Any], image: int, below: int | None = None, flags: int = MS_NOSUID | MS_NODEV) -> int:
    # Use /proc/self/fd paths, because overlay options cannot escape colons and commas.
    layers = {
        name: os.open(plan[name], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name in ("below", "upper", "work")
    }
    if below is not None:
        os.dup2(below, layers["below"], inheritable=False)
    options = f"lowerdir=/proc/self/fd/{image}:/proc/self/fd/{layers['below']}"
    options += f",upperdir=/proc/self/fd/{layers['upper']},workdir=/proc/self/fd/{layers['work']}"
    if plan["host_uid"] is None:
        options += ",userxattr"
    try:
        # Sandboxes end with their host, so their writes need not be flushed.
        mount_filesystem("overlay", plan["root"], "overlay", flags, f"{options},volatile")
    except OSError:
        mount_filesystem("overlay", plan["root"], "overlay", flags, options)  # Before Linux 5.10.
    for descriptor in layers.values():
        os.close(descriptor)
    return os.open(plan["root"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def write_plan_files(root: int, plan: dict[str, Any], owner: int | None) -> None:
    contents = {path: text.encode() for path, text in plan["files"].items()}
    for path, source in plan["copies"].items():
        with open(source, "rb") as file:
            contents[path] = file.read()
    for path, content in contents.items():
        parent, name = os.path.split(path)
        directory = open_or_create_directory(root, parent, owner)
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o644, dir_fd=directory)
        os.write(descriptor, content)
        if owner is not None:
            os.fchown(descriptor, owner, owner)
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


def enter_namespaces(privileged: bool, subordinate_ids: dict[str, tuple[int, int]] | None) -> None:
    """Enter new mount and network namespaces, and a user namespace unless privileged.

    They belong to a user namespace above the sandbox's, so that no program of the sandbox has power over them.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWNET | (0 if privileged else CLONE_NEWUSER)
    if subordinate_ids is not None:
        root_mode.unshare_with_subordinate_ids(flags, uid, gid, subordinate_ids)
    else:
        check_syscall_result(libc.unshare(flags), "unshare")
    if not privileged and subordinate_ids is None:
        write_host_file("/proc/self/setgroups", "deny")
        write_host_file("/proc/self/uid_map", f"0 {uid} 1")
        write_host_file("/proc/self/gid_map", f"0 {gid} 1")
    mount_filesystem("none", "/", None, MS_REC | MS_PRIVATE)


def build_file_tree(plan: dict[str, Any], namespace: int | None) -> int:
    """Mount the root and all mounts below it; `namespace` has the sandbox's ids in root mode."""
    root = mount_sandbox_root(plan) if namespace is None else mount_root_for_range(plan, namespace)
    owner = None if namespace is None else plan["host_uid"]
    write_plan_files(root, plan, owner)
    for item in plan["binds"]:
        bind_mount(root, item, plan["host_uid"], owner)
    return root


def stage_file_tree(root: int) -> None:
    """Leave the finished tree where bubblewrap finds it."""
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

    In root mode, this returns in the sandbox's first process. Returns False if the kernel refuses to redirect
    connections.
    """
    join_cgroups(plan["cgroups"])
    for name, value in plan["rlimits"].items():
        kind = getattr(resource, name)
        ceiling = resource.getrlimit(kind)[1]
        value = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (value, value))
    os.umask(0o022)
    privileged = plan["host_uid"] is not None
    settings: dict[str, Any] | None = plan["root_mode"]
    enter_namespaces(privileged, settings and settings["subordinate_ids"])
    redirected = configure_network()
    os.chdir("/")
    if settings is not None:
        ids = root_mode.format_id_map(plan["host_uid"], settings["id_count"])
        namespace = create_idmap_namespace(ids, ids)
        root_mode.start_first_process(plan, build_file_tree(plan, namespace), namespace)
        return redirected
    stage_file_tree(build_file_tree(plan, None))
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
    for index, descriptor in enumerate(to_pass):
        os.dup2(descriptor, first_passed + index, inheritable=False)
    with open(document, "rb") as file:
        plan = json.load(file)
    try:
        redirected = prepare_sandbox(plan)
        if not redirected:
            disable_redirection(plan["daemon_config"])
        os.write(result_writer, b"!" if redirected else b"?")
        os.setsid()
        for descriptor in plan["inherited"]:
            os.set_inheritable(descriptor, True)
        if plan["root_mode"] is not None:
            os.execve(plan["argv"][0], plan["argv"], plan["root_mode"]["environment"])
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
