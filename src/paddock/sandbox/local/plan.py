"""What a box is made of, worked out before anything is started."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import InvalidInput
from paddock.model.sandbox import BoxSpec, Image, Limits, Mount, Service
from paddock.sandbox.local.layout import BoxFiles

PYTHON = "/usr/bin/python3"
INSIDE = "/opt/paddock/inside.pyz"
HOLES = "/run/paddock/holes"
DISK_NOTICE = "disk-full"
"""File among the holes that says why nothing may be written; the sandbox can read it and no more."""
WORKSPACE = "/workspace"
SHARED = "/shared"
FILES = (INSIDE,)
"""What every box needs for files to be mounted on; below its image, for what the image has not."""
STAGE = "/tmp"  # noqa: S108 — where launch.py leaves the finished tree, in a mount namespace of its own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BEGIN = (
    "import gc, sys; gc.disable(); del sys.argv[0]; sys.path.insert(0, sys.argv[0]); "
    "from inside.main import main; sys.exit(main(sys.argv[1:]))"
)
"""What `python3 inside.pyz` does as well, but by way of modules that take longer to load than the daemon's own.

Nothing that is loaded is ever let go, so nobody looks for what may be until the daemon is there.
"""
START_EARLY = """
ready=$1; shift
if [ -S "$ready" ] || [ -f "$ready" ] || [ -p "$ready" ]; then /bin/rm -f -- "$ready" {closed}; fi
PADDOCK_COMMAND_ID={marker} /usr/bin/setsid "$@" >&{output} 2>&{output} {closed} &
exec {daemon} --early $!
"""
"""What a box with an early service begins with; nothing but the daemon gets the daemon's descriptors."""


@dataclass(frozen=True)
class Early:
    """The service that starts beside the daemon instead of after it, and that the daemon then adopts."""

    service: Service
    output: int
    """The descriptor it writes to."""
    marker: str
    """By which the daemon knows what comes of it."""

    def document(self) -> dict[str, Any]:
        return {"service": self.service.name, "output": self.output, "marker": self.marker}


def early_service(image: Image, output: int) -> Early | None:
    """The first service that others wait for and that waits for none itself."""
    awaited = {name for service in image.services for name in service.after}
    for service in image.services:
        if service.name in awaited and not service.after and not service.env:
            return Early(service, output, secrets.token_hex(16))
    return None


def directories(shared: Path | None) -> tuple[str, ...]:
    """The same for directories."""
    return ("/proc", "/dev", HOLES, WORKSPACE, *((SHARED,) if shared is not None else ()))


def merged(defaults: Limits, given: Limits) -> Limits:
    return defaults.model_copy(update=given.model_dump(exclude_none=True))


def environment(spec: BoxSpec) -> dict[str, str]:
    """What every program of the box starts with."""
    user = spec.image.user
    basic = {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "PADDOCK_SANDBOX_ID": spec.id,
    }
    return {**basic, **spec.image.env, **spec.env}


def inside_config(
    spec: BoxSpec, listener: int, limits: Limits, grouped: frozenset[str], early: Early | None = None
) -> dict[str, Any]:
    """The document `inside` reads when it starts."""
    user = spec.image.user
    return {
        "listen": {"fd": listener},
        "token": spec.token,
        "env": environment(spec),
        "cwd": WORKSPACE,
        "user": {"name": user.name, "home": user.home, "shell": user.shell},
        "entrypoint": list(spec.entrypoint) if spec.entrypoint else None,
        "services": [service.model_dump(mode="json") for service in spec.image.services],
        "early": early.document() if early else None,
        "disk_notice": f"{HOLES}/{DISK_NOTICE}",
        "state": "/var/tmp/paddock",  # noqa: S108 — a path in the box
        "bridges": [{"port": hole.port, "socket": f"{HOLES}/{hole.name}.sock"} for hole in spec.holes],
        "limits": limits.model_dump(include={"cpu", "memory"}, exclude_none=True),
        "rlimits": dict(_inner_rlimits(limits, grouped)),
    }


def bwrap_arguments(spec: BoxSpec, limits: Limits, filters: list[int], report: int) -> bytes:
    """Arguments for `bwrap --args`: what a descriptor holds, no process list shows."""
    user = spec.image.user
    assert limits.memory is not None
    words = [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net",
        "--uid", str(user.uid), "--gid", str(user.gid), "--hostname", spec.hostname, "--as-pid-1", "--cap-drop", "ALL",
        "--json-status-fd", str(report),
        "--bind", STAGE, "/", "--proc", "/proc", "--dev", "/dev",
        "--perms", "1777", "--size", str(limits.memory // 2), "--tmpfs", "/dev/shm",  # noqa: S108
        "--remount-ro", "/dev", "--clearenv", "--chdir", WORKSPACE,
    ]  # fmt: skip
    if not spec.image.nested_namespaces:
        words.append("--disable-userns")
    for descriptor in filters:
        words += ["--add-seccomp-fd", str(descriptor)]
    for name, value in environment(spec).items():
        words += ["--setenv", name, value]
    if any("\0" in word for word in words):
        # It would end the word early, and the rest would be taken for further arguments, mounts among them.
        raise InvalidInput("the environment, hostname and user of a box must not contain NUL characters")
    return b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)


def bwrap_command(bwrap: str, arguments: int, config: int, early: Early | None = None) -> list[str]:
    daemon = [PYTHON, "-I", "-S", "-c", BEGIN, INSIDE, "--config-fd", str(config)]
    begin = [bwrap, "--args", str(arguments), "--"]
    if early is None:
        return [*begin, *daemon]
    closed = " ".join(f"{descriptor}>&-" for descriptor in range(3, 10))
    script = START_EARLY.format(marker=early.marker, output=early.output, closed=closed, daemon=shlex.join(daemon))
    command = early.service.command
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return [*begin, "/bin/sh", "-c", script, "sh", early.service.ready or "", *words]


def etc_files(hostname: str) -> dict[str, str]:
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n",
        "/etc/resolv.conf": "",
    }


def binds(spec: BoxSpec, files: BoxFiles, inside: Path, shared: Path | None) -> list[dict[str, Any]]:
    """Every mount of the box besides its image, in the order they are made."""
    own = [
        *spec.image.binds,
        Mount(source=inside, target=INSIDE, read_only=True),
        Mount(source=files.holes, target=HOLES, read_only=True),
        Mount(source=files.workspace, target=WORKSPACE),
    ]
    given = [*spec.mounts]
    if shared is not None and shared.is_dir():
        given.insert(0, Mount(source=shared, target=SHARED, read_only=True))
    return [*(_bind(mount, map_owner=False) for mount in own), *(_bind(mount, map_owner=True) for mount in given)]


def _bind(mount: Mount, map_owner: bool) -> dict[str, Any]:
    return {**mount.model_dump(mode="json"), "map_owner": map_owner}


def outer_rlimits(limits: Limits) -> dict[str, int]:
    """Limits set before the box's user namespace exists: they hold in any."""
    assert limits.files is not None and limits.disk is not None
    return {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": limits.files, "RLIMIT_FSIZE": limits.disk}


def _inner_rlimits(limits: Limits, grouped: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Limits `inside` sets on itself, so that processes are counted in the box's namespace, not for the host's user."""
    if "pids" not in grouped and limits.pids is not None:
        yield "NPROC", limits.pids
    if "memory" not in grouped and limits.memory is not None:
        yield "DATA", limits.memory
