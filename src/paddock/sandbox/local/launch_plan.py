"""Launch plan of a sandbox: mounts, environment, limits and command lines."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import InvalidInput
from paddock.model.sandbox import Image, ImageService, SandboxLimits, SandboxMount, SandboxSpec
from paddock.sandbox.local.network_namespace import CONNECTION_PORT, DNS_PORT
from paddock.sandbox.local.sandbox_files import SandboxFiles
from paddock.sandbox.local.seccomp import SystemCallPolicy

PYTHON = "/usr/bin/python3"
DAEMON_ZIPAPP_PATH = "/opt/paddock/inside.pyz"
UPLINK_DIRECTORY = "/run/paddock/holes"
NETWORK_SOCKET = f"{UPLINK_DIRECTORY}/network.sock"
"""Uplink socket to which the daemon passes the connections of the sandbox's programs."""
DISK_NOTICE = "disk-full"
"""File in the uplink directory with the reason why writes are refused; read-only in the sandbox."""
WORKSPACE = "/workspace"
SHARED = "/shared"
MOUNT_POINT_FILES = (DAEMON_ZIPAPP_PATH,)
"""Mount points of every sandbox, in a layer below the image in case the image lacks them."""
STAGED_TREE = "/tmp"  # noqa: S108 — where launcher_process.py leaves the finished tree, in a mount namespace of its own
PROGRAM_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_DAEMON_CODE = (
    "import gc, sys; gc.disable(); del sys.argv[0]; sys.path.insert(0, sys.argv[0]); "
    "from inside.main import main; sys.exit(main(sys.argv[1:]))"
)
"""Starts the zipapp like `python3 inside.pyz`, but without runpy, which takes longer to load than the daemon.

The garbage collector is off until the daemon runs, because start-up frees nothing.
"""
START_EARLY_SCRIPT = """
ready=$1; shift
if [ -S "$ready" ] || [ -f "$ready" ] || [ -p "$ready" ]; then /bin/rm -f -- "$ready" {closed}; fi
PADDOCK_COMMAND_ID={marker} /usr/bin/setsid "$@" >&{output} 2>&{output} {closed} &
exec {daemon} --early $!
"""
"""First command of a sandbox with an early service; only the daemon keeps its descriptors."""


@dataclass(frozen=True)
class EarlyService:
    """A service that starts in parallel with the daemon, which adopts it."""

    service: ImageService
    output: int
    """Descriptor of its output."""
    marker: str
    """Name under which the daemon tracks it."""

    def document(self) -> dict[str, Any]:
        return {"service": self.service.name, "output": self.output, "marker": self.marker}


def find_early_service(image: Image, output: int) -> EarlyService | None:
    """Return the first service that others wait for and that waits for none."""
    awaited = {name for service in image.services for name in service.after}
    for service in image.services:
        if service.name in awaited and not service.after and not service.env:
            return EarlyService(service, output, secrets.token_hex(16))
    return None


def mount_point_directories(shared: Path | None) -> tuple[str, ...]:
    """Mount points that are directories."""
    return ("/proc", "/dev", UPLINK_DIRECTORY, WORKSPACE, *((SHARED,) if shared is not None else ()))


def merge_sandbox_limits(defaults: SandboxLimits, requested: SandboxLimits) -> SandboxLimits:
    return defaults.model_copy(update=requested.model_dump(exclude_none=True))


def sandbox_environment(spec: SandboxSpec) -> dict[str, str]:
    """Return the environment of the sandbox's programs."""
    user = spec.program_user
    basic = {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "PATH": PROGRAM_SEARCH_PATH,
        "LANG": "C.UTF-8",
        "PADDOCK_SANDBOX_ID": spec.id,
    }
    return {**basic, **spec.image.env, **spec.env}


def build_daemon_config(
    spec: SandboxSpec, listener: int, limits: SandboxLimits, grouped: frozenset[str], early: EarlyService | None = None
) -> dict[str, Any]:
    """Return the daemon's start configuration."""
    user = spec.program_user
    return {
        "listen": {"fd": listener},
        "token": spec.token,
        "env": sandbox_environment(spec),
        "cwd": WORKSPACE,
        "user": {"name": user.name, "home": user.home, "shell": user.shell},
        "entrypoint": list(spec.entrypoint) if spec.entrypoint else None,
        "services": [service.model_dump(mode="json") for service in spec.image.services],
        "early": early.document() if early else None,
        "disk_notice": f"{UPLINK_DIRECTORY}/{DISK_NOTICE}",
        "state": "/var/tmp/paddock",  # noqa: S108 — a path in the sandbox
        "bridges": [
            {"port": service.port, "socket": f"{UPLINK_DIRECTORY}/{service.name}.sock"}
            for service in spec.uplink_services
        ],
        "network": {
            "socket": NETWORK_SOCKET,
            "connection_port": CONNECTION_PORT,
            "dns_port": DNS_PORT,
            "redirected": True,  # The launcher process changes it if the kernel refuses.
        },
        "limits": limits.model_dump(include={"cpu", "memory"}, exclude_none=True),
        "rlimits": dict(_inner_rlimits(limits, grouped)),
    }


def format_bwrap_arguments(spec: SandboxSpec, limits: SandboxLimits, filters: list[int], report: int) -> bytes:
    """Return arguments for `bwrap --args`, passed by descriptor to stay out of process lists."""
    user = spec.program_user
    assert limits.memory is not None
    words = [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--uid", str(user.uid), "--gid", str(user.gid), "--hostname", spec.hostname, "--as-pid-1", "--cap-drop", "ALL",
        "--json-status-fd", str(report),
        "--bind", STAGED_TREE, "/", "--proc", "/proc", "--dev", "/dev",
        "--perms", "1777", "--size", str(limits.memory // 2), "--tmpfs", "/dev/shm",  # noqa: S108
        "--remount-ro", "/dev", "--clearenv", "--chdir", WORKSPACE,
    ]  # fmt: skip
    if not spec.image.nested_namespaces:
        words.append("--disable-userns")
    for descriptor in filters:
        words += ["--add-seccomp-fd", str(descriptor)]
    for name, value in sandbox_environment(spec).items():
        words += ["--setenv", name, value]
    check_for_nul(words)
    return b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)


def check_for_nul(words: Iterable[str]) -> None:
    """Raise `InvalidInput` for a NUL, which would end a word, so that the rest could be a mount."""
    if any("\0" in word for word in words):
        raise InvalidInput("the environment, hostname and user of a sandbox must not contain NUL characters")


def plan_root_mode(
    spec: SandboxSpec,
    limits: SandboxLimits,
    filters: list[int],
    report: int,
    id_count: int,
    subordinate_ids: Mapping[str, tuple[int, int]] | None,
) -> dict[str, Any]:
    """Return what `root_mode.py` needs to start the first process."""
    assert limits.memory is not None
    environment = sandbox_environment(spec)
    check_for_nul([spec.hostname, *environment, *environment.values()])
    return {
        "report": report,
        "filters": filters,
        "hostname": spec.hostname,
        "environment": environment,
        "directory": WORKSPACE,
        "shared_memory": limits.memory // 2,
        "nested_namespaces": spec.image.nested_namespaces,
        "id_count": id_count,
        "subordinate_ids": subordinate_ids,
    }


def system_call_policy(spec: SandboxSpec) -> SystemCallPolicy:
    return SystemCallPolicy(
        nested_namespaces=spec.image.nested_namespaces,
        root_mode=spec.root_mode,
        host_files=spec.root_mode and any(not mount.read_only for mount in spec.mounts),
    )


def build_daemon_command(prefix: Sequence[str], config: int, early: EarlyService | None = None) -> list[str]:
    """Return the command line of the sandbox's first process; `prefix` starts it."""
    daemon = [PYTHON, "-I", "-S", "-c", START_DAEMON_CODE, DAEMON_ZIPAPP_PATH, "--config-fd", str(config)]
    if early is None:
        return [*prefix, *daemon]
    closed = " ".join(f"{descriptor}>&-" for descriptor in range(3, 10))
    script = START_EARLY_SCRIPT.format(
        marker=early.marker, output=early.output, closed=closed, daemon=shlex.join(daemon)
    )
    command = early.service.command
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return [*prefix, "/bin/sh", "-c", script, "sh", early.service.ready or "", *words]


def etc_file_contents(hostname: str) -> dict[str, str]:
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n",
        "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:3\n",
    }


def plan_bind_mounts(
    spec: SandboxSpec, files: SandboxFiles, inside: Path, shared: Path | None, added: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """Return all mounts besides the image, in order; `added` are single files by path in the sandbox."""
    own = [
        *spec.image.binds,  # Owners of the host's /usr are not mapped, so that files only for root stay closed.
        SandboxMount(source=inside, target=DAEMON_ZIPAPP_PATH, read_only=True),
        SandboxMount(source=files.uplinks, target=UPLINK_DIRECTORY, read_only=True),
        SandboxMount(source=files.workspace, target=WORKSPACE),
        *(SandboxMount(source=source, target=target, read_only=True) for target, source in added.items()),
    ]
    requested = [*spec.mounts]
    if shared is not None and shared.is_dir():
        requested.insert(0, SandboxMount(source=shared, target=SHARED, read_only=True))
    return [*(_bind(mount, map_owner=False) for mount in own), *(_bind(mount, map_owner=True) for mount in requested)]


def _bind(mount: SandboxMount, map_owner: bool) -> dict[str, Any]:
    return {**mount.model_dump(mode="json"), "map_owner": map_owner}


def rlimits_for_all_namespaces(limits: SandboxLimits) -> dict[str, int]:
    """Return rlimits to set before the user namespace exists, which hold in all."""
    assert limits.files is not None and limits.disk is not None
    return {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": limits.files, "RLIMIT_FSIZE": limits.disk}


def _inner_rlimits(limits: SandboxLimits, grouped: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield rlimits for the daemon to set, so that processes are counted in the sandbox's namespace."""
    if "pids" not in grouped and limits.pids is not None:
        yield "NPROC", limits.pids
    if "memory" not in grouped and limits.memory is not None:
        yield "DATA", limits.memory
