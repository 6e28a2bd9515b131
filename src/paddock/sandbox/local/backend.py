"""Sandboxes on bubblewrap: no daemon, no root needed, no network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, ParamSpec

from paddock.errors import (
    Conflict,
    SandboxError,
    SandboxGone,
    SandboxStartError,
    SnapshotNotFound,
    Unavailable,
    Unsupported,
)
from paddock.model.sandbox import DaemonAddress, SandboxHealth, SandboxLimits, SandboxSpec, SandboxStatus
from paddock.sandbox.base import BackendFeature, HostCheck, OpenDeletedFiles, Record, SandboxBackend
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.daemon.zipapp_builder import build_daemon_zipapp
from paddock.sandbox.local import cgroups, host_checks, launch_plan, process_control, sandbox_files, seccomp
from paddock.sandbox.local.launcher_client import FIRST_PASSED_DESCRIPTOR, LauncherClient
from paddock.sandbox.local.open_deleted_files import find_open_deleted_files
from paddock.sandbox.local.process_control import ProcessIdentity
from paddock.sandbox.local.root_mode import ID_COUNT
from paddock.sandbox.local.sandbox_files import SandboxFiles, SandboxOwners
from paddock.sandbox.local.subordinate_ids import find_subordinate_ids
from paddock.sandbox.local.uid_pool import UidPool

P = ParamSpec("P")
MAX_CONCURRENT_MEASUREMENTS = 8


@dataclass(frozen=True)
class LocalBackendSettings:
    """Configuration of the backend."""

    data: Path
    shared: Path | None = None
    """Directory mounted read-only as /shared in every sandbox."""
    uid_base: int = 1_200_000_000
    uid_count: int = 65_536
    uid_ranges: int = 1024
    """Number of ranges of 65,536 uids for root mode, after those of `uid_count`."""
    cgroup_parent: str | None = None
    start_timeout: float = 30.0
    defaults: SandboxLimits = SandboxLimits(cpu=2, memory=2 * 2**30, pids=512, disk=10 * 2**30, files=65_536)
    filter_system_calls: bool = True


class LocalBackend(SandboxBackend):
    """Runs each sandbox as a bubblewrap process tree that survives this process."""

    name: ClassVar[str] = "local"

    def __init__(self, settings: LocalBackendSettings) -> None:
        self._settings = settings
        self._sandboxes = settings.data / "boxes"
        self._snapshots = settings.data / "snapshots"
        sockets = settings.data / "sockets"
        for directory in (settings.data, self._sandboxes, self._snapshots, sockets):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sandbox_files.spread_new_directories(self._sandboxes)
        # Unix socket paths are limited to 107 bytes; reach longer data directories through a descriptor.
        self._sockets = os.open(sockets, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._boot = process_control.boot_id()
        self._cgroups = cgroups.find_cgroups(_instance(settings.data), settings.cgroup_parent)
        self._inside = build_daemon_zipapp(settings.data / "inside")
        self._below = settings.data / "below"
        sandbox_files.create_mount_points(
            self._below, launch_plan.mount_point_directories(settings.shared), launch_plan.MOUNT_POINT_FILES
        )
        self._launcher = LauncherClient()
        # Separate threads, because a sandbox can slow measuring down.
        self._measuring = ThreadPoolExecutor(MAX_CONCURRENT_MEASUREMENTS, thread_name_prefix="measure")
        self._uids: UidPool | None = None
        self._uid_ranges: UidPool | None = None
        if os.geteuid() == 0:
            facts = [SandboxFiles(path).read_facts() for path in self._sandboxes.iterdir()]
            taken = [
                {each["uid"] for each in facts if each.get("uid") is not None and bool(each.get("root_mode")) is m}
                for m in (False, True)
            ]
            self._uids = UidPool(settings.uid_base, settings.uid_count, taken[0])
            self._uid_ranges = UidPool(
                settings.uid_base + settings.uid_count, settings.uid_ranges, taken[1], ID_COUNT, "local.uid_ranges"
            )

    @property
    def features(self) -> frozenset[BackendFeature]:
        found = {
            BackendFeature.PAUSE,
            BackendFeature.SNAPSHOT,
            BackendFeature.SURVIVE,
            BackendFeature.MOUNTS,
            BackendFeature.UPLINK,
            BackendFeature.ROOT_MODE,
        }
        if "memory" in self._cgroups.controllers:
            found.add(BackendFeature.MEMORY_LIMIT)
        if "cpu" in self._cgroups.controllers:
            found.add(BackendFeature.CPU_LIMIT)
        return frozenset(found)

    async def start(self, spec: SandboxSpec) -> Record:
        spec = self._with_mode_of_snapshot(spec)
        record = self._reserve(spec)  # Faster than a thread, and never cancelled half-way.
        try:
            await _run_uncancelled(self._prepare_files, spec, record)
            record["redirected"] = await self._launch(spec, record)
            await self._wait_for_daemon(record)
        except BaseException as error:
            tail = self._files(spec.id).log_tail()
            await asyncio.shield(self.remove(spec.id))
            if isinstance(error, (SandboxError, TimeoutError, subprocess.CalledProcessError)):
                raise SandboxStartError(_describe_start_failure(error, tail)) from error
            raise
        return record

    def daemon_address(self, record: Record) -> DaemonAddress:
        return DaemonAddress(token=record["token"], socket=Path(self._socket(record["id"])))

    def uplink_directory(self, record: Record) -> Path:
        return self._files(record["id"]).uplinks

    async def status(self, record: Record) -> SandboxStatus:
        return await asyncio.to_thread(self._status, record["id"])

    async def wait(self, record: Record) -> SandboxStatus:
        identity = self._identity(record["id"])
        if identity is not None:
            await process_control.wait_for_exit(identity)
        return await self.status(record)

    async def limit(self, record: Record, limits: SandboxLimits) -> None:
        await asyncio.to_thread(self._limit, record["id"], limits)

    async def pause(self, record: Record) -> None:
        await asyncio.to_thread(self._freeze, record["id"], True)

    async def resume(self, record: Record) -> None:
        await asyncio.to_thread(self._freeze, record["id"], False)

    async def snapshot(self, record: Record, snapshot_id: str) -> None:
        if (self._snapshots / snapshot_id).exists():
            raise Conflict(f"snapshot {snapshot_id} exists already")
        try:
            await _run_uncancelled(self._save_snapshot, record, snapshot_id)
        except asyncio.CancelledError:
            await self.delete_snapshot(snapshot_id)
            raise

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await asyncio.to_thread(sandbox_files.remove_sandbox_tree, self._snapshots / snapshot_id)

    async def snapshots(self) -> Sequence[str]:
        return sorted(path.name for path in self._snapshots.iterdir() if not path.name.startswith("."))

    async def disk_used(self, record: Record) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._measuring, self._disk_used, record["id"])

    async def open_deleted_files(self, record: Record) -> OpenDeletedFiles:
        return await asyncio.get_running_loop().run_in_executor(self._measuring, self._open_deleted_files, record["id"])

    async def end_commands(self, record: Record) -> None:
        await asyncio.to_thread(self._end_commands, record["id"])

    async def refuse_writes(self, record: Record, reason: str | None) -> None:
        await asyncio.to_thread(self._refuse_writes, record["id"], reason)

    async def remove(self, sandbox_id: str) -> None:
        await asyncio.to_thread(self._remove, sandbox_id)

    async def leftovers(self) -> Sequence[str]:
        directories = {path.name.removeprefix(sandbox_files.TRASH_PREFIX) for path in self._sandboxes.iterdir()}
        return sorted(directories | self._cgroups.sandboxes())

    async def examine(self) -> Sequence[HostCheck]:
        return await asyncio.to_thread(host_checks.check_host_for_local_sandboxes, self._settings.data, self._cgroups)

    async def close(self) -> None:
        if not await self.leftovers():
            self._cgroups.dissolve()
        self._launcher.close()
        self._measuring.shutdown(wait=False, cancel_futures=True)
        os.close(self._sockets)

    def _files(self, sandbox_id: str) -> SandboxFiles:
        return SandboxFiles(self._sandboxes / sandbox_id)

    def _socket(self, sandbox_id: str) -> str:
        return f"/proc/self/fd/{self._sockets}/{sandbox_id}"

    def _identity(self, sandbox_id: str) -> ProcessIdentity | None:
        files = self._files(sandbox_id)
        return process_control.identity_from_report(
            process_control.read_bwrap_report(files.report), files.read_facts().get("boot", "")
        )

    def _running_process(self, sandbox_id: str) -> ProcessIdentity:
        identity = self._identity(sandbox_id)
        if identity is None or not identity.alive():
            raise SandboxGone(f"sandbox {sandbox_id} has ended")
        return identity

    def _reserve(self, spec: SandboxSpec) -> dict[str, Any]:
        pool = self._uid_pool(spec.root_mode)
        uid = pool.acquire() if pool else None
        try:
            self._files(spec.id).create({"uid": uid, "boot": self._boot, "root_mode": spec.root_mode})
        except OSError as error:
            if pool:
                pool.release(uid)
            if isinstance(error, FileExistsError):
                raise SandboxStartError(f"sandbox {spec.id} exists already") from None
            raise Unavailable(f"the data directory cannot be written: {error.strerror}") from error
        return {"id": spec.id, "token": spec.token, "uid": uid, "root_mode": spec.root_mode}

    def _uid_pool(self, root_mode: bool) -> UidPool | None:
        return self._uid_ranges if root_mode else self._uids

    def _prepare_files(self, spec: SandboxSpec, record: Record) -> None:
        files = self._files(spec.id)
        uid: int | None = record["uid"]
        if spec.snapshot:
            self._restore(spec, files, uid)
        if uid is not None:
            os.chown(files.workspace, uid, uid)
            if record["root_mode"]:
                os.chown(files.upper, uid, uid)
        self._cgroups.create(spec.id)
        self._cgroups.limit(spec.id, launch_plan.merge_sandbox_limits(self._settings.defaults, spec.limits))

    async def _launch(self, spec: SandboxSpec, record: Record) -> bool:
        """Start the sandbox's processes; False if its connections are not redirected to the daemon."""
        files = self._files(spec.id)
        root_mode = spec.root_mode
        limits = launch_plan.merge_sandbox_limits(self._settings.defaults, spec.limits)
        with ExitStack() as resources:
            log = resources.enter_context(files.log.open("ab")).fileno()
            passed = [
                resources.enter_context(self._listen(spec.id)).fileno(),
                resources.enter_context(files.report.open("ab")).fileno(),
            ]
            listener, report, config, arguments, *remaining = range(
                FIRST_PASSED_DESCRIPTOR, FIRST_PASSED_DESCRIPTOR + 7
            )
            programs = (
                seccomp.build_seccomp_filters(launch_plan.system_call_policy(spec))
                if self._settings.filter_system_calls
                else ()
            )
            filters, output = remaining[: len(programs)], remaining[len(programs)]
            early = launch_plan.find_early_service(spec.image, output)
            daemon_config = launch_plan.build_daemon_config(spec, listener, limits, self._cgroups.controllers, early)
            for name, content in (
                ("inside", json.dumps(daemon_config).encode()),
                ("arguments", b"" if root_mode else launch_plan.format_bwrap_arguments(spec, limits, filters, report)),
                *(("seccomp", program) for program in programs),
            ):
                passed.append(resources.enter_context(process_control.open_memory_file(name, content)))
            inherited = [listener, config]
            if early is not None:
                passed.append(resources.enter_context(process_control.open_two_way_pipe()))
                inherited.append(output)
            if not root_mode:
                inherited += [report, arguments, *filters]
            prefix = () if root_mode else (_bwrap(), "--args", str(arguments), "--")
            added = files.write_added_files(spec.files)
            plan = {
                "lower": str(spec.image.root),
                "below": str(self._below),
                **{name: str(getattr(files, name)) for name in ("upper", "work", "root")},
                "home": spec.program_user.home,
                "image_uid": spec.image.user.uid,
                "image_gid": spec.image.user.gid,
                "host_uid": record["uid"],
                "cgroups": [str(directory) for directory in self._cgroups.process_groups(spec.id)],
                "rlimits": launch_plan.rlimits_for_all_namespaces(limits),
                "files": launch_plan.etc_file_contents(spec.hostname),
                # Root of a sandbox replaces files such as the certificate bundle, which mounts would prevent.
                "copies": {target: str(source) for target, source in added.items()} if root_mode else {},
                "binds": launch_plan.plan_bind_mounts(
                    spec, files, self._inside, self._settings.shared, {} if root_mode else added
                ),
                "daemon_config": config,
                "argv": launch_plan.build_daemon_command(prefix, config, early),
                "inherited": inherited,
                "root_mode": self._plan_root_mode(spec, limits, filters, report) if root_mode else None,
            }
            outcome = await self._launcher.launch(plan, log, passed)
        if not outcome.launched:
            raise SandboxStartError("the sandbox could not be set up")
        return outcome.redirected

    def _plan_root_mode(
        self, spec: SandboxSpec, limits: SandboxLimits, filters: list[int], report: int
    ) -> dict[str, Any]:
        ids = None if os.geteuid() == 0 else find_subordinate_ids()
        count = ID_COUNT if os.geteuid() == 0 else 1 if ids is None else 1 + min(ids["users"][1], ids["groups"][1])
        return launch_plan.plan_root_mode(spec, limits, filters, report, count, ids)

    def _listen(self, sandbox_id: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.bind(self._socket(sandbox_id))
        listener.listen(128)
        return listener

    async def _wait_for_daemon(self, record: Record) -> None:
        # Only the sandbox holds the listening socket now, so its death ends this at once.
        async with DaemonClient(self.daemon_address(record)) as inside, asyncio.timeout(self._settings.start_timeout):
            await inside.ping()

    def _status(self, sandbox_id: str) -> SandboxStatus:
        kills = self._cgroups.out_of_memory_kills(sandbox_id)
        report = process_control.read_bwrap_report(self._files(sandbox_id).report)
        identity = self._identity(sandbox_id)
        if identity is not None and identity.alive():
            paused = (
                self._cgroups.frozen(sandbox_id)
                if self._cgroups.freezable
                else process_control.is_process_stopped(identity.pid)
            )
            return SandboxStatus(
                health=SandboxHealth.PAUSED if paused else SandboxHealth.RUNNING, out_of_memory_kills=kills
            )
        code = report.get("exit-code")
        reason = "out_of_memory" if kills and code == 137 else "exited" if code in (0, 143) else "killed"
        message = f"the sandbox's first process ended with code {code}" if code is not None else "the sandbox is gone"
        return SandboxStatus(
            health=SandboxHealth.GONE, exit_code=code, reason=reason, message=message, out_of_memory_kills=kills
        )

    def _limit(self, sandbox_id: str, limits: SandboxLimits) -> None:
        self._running_process(sandbox_id)
        try:
            self._cgroups.limit(sandbox_id, limits)
        except OSError as error:
            raise Conflict(f"sandbox {sandbox_id} cannot have these limits: {error.strerror}") from error

    def _freeze(self, sandbox_id: str, frozen: bool) -> None:
        identity = self._running_process(sandbox_id)
        if self._cgroups.freezable:
            self._cgroups.freeze(sandbox_id, frozen)
        elif frozen:
            process_control.stop_namespace_processes(identity.pid_namespace)
        else:
            process_control.continue_namespace_processes(identity.pid_namespace)

    def _save_snapshot(self, record: Record, snapshot_id: str) -> None:
        files = self._files(record["id"])
        was_frozen = self._status(record["id"]).health is SandboxHealth.PAUSED
        partial = self._snapshots / f".{snapshot_id}"
        sandbox_files.remove_sandbox_tree(partial)
        self._freeze(record["id"], True)
        try:
            partial.mkdir(mode=0o700)
            for name in sandbox_files.WRITTEN_DIRECTORIES:
                sandbox_files.copy_sandbox_tree(files.directory / name, partial / name)
            facts = {"uid": record["uid"], "root_mode": record.get("root_mode", False)}
            (partial / "snapshot.json").write_text(json.dumps(facts))
            partial.rename(self._snapshots / snapshot_id)
        except BaseException as error:
            sandbox_files.remove_sandbox_tree(partial)
            if isinstance(error, subprocess.CalledProcessError):
                raise SandboxError(f"the sandbox's files could not be copied: {_last_line(error)}") from error
            raise
        finally:
            if not was_frozen:
                self._freeze(record["id"], False)

    def _with_mode_of_snapshot(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec in root mode if the snapshot's sandbox was."""
        if spec.snapshot is None or spec.root_mode or not self._read_snapshot_facts(spec.snapshot).get("root_mode"):
            return spec
        return spec.model_copy(update={"user": "root"})

    def _read_snapshot_facts(self, snapshot_id: str) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads((self._snapshots / snapshot_id / "snapshot.json").read_text())
        except FileNotFoundError:
            raise SnapshotNotFound(f"there is no snapshot {snapshot_id}") from None
        return facts

    def _restore(self, spec: SandboxSpec, files: SandboxFiles, uid: int | None) -> None:
        assert spec.snapshot is not None
        snapshot_directory = self._snapshots / spec.snapshot
        facts = self._read_snapshot_facts(spec.snapshot)
        old_uid, old_root_mode = facts["uid"], facts.get("root_mode", False)
        if (old_uid is None) != (uid is None):
            raise Unsupported("only root can restore root's snapshots, and only the same user a user's")
        for name in sandbox_files.WRITTEN_DIRECTORIES:
            source, target = snapshot_directory / name, files.directory / name
            target.rmdir()
            if uid is not None and (old_root_mode or spec.root_mode):
                before, after = SandboxOwners(old_uid, old_root_mode), SandboxOwners(uid, spec.root_mode)
                sandbox_files.copy_with_other_owners(source, target, before, after, spec.image.user)
                continue
            sandbox_files.copy_sandbox_tree(source, target)
            if uid is not None:
                sandbox_files.change_tree_owner(target, old_uid, uid)

    def _disk_used(self, sandbox_id: str) -> int:
        files = self._files(sandbox_id)
        named = sandbox_files.disk_bytes_used(files.upper, files.workspace, files.log)
        return named + self._open_deleted_files(sandbox_id).size

    def _open_deleted_files(self, sandbox_id: str) -> OpenDeletedFiles:
        files, identity = self._files(sandbox_id), self._identity(sandbox_id)
        if identity is None or not identity.alive() or not files.upper.exists():
            return OpenDeletedFiles()
        if self._cgroups.hierarchies:
            pids = self._cgroups.processes(sandbox_id)
        else:
            pids = process_control.namespace_members(identity.pid_namespace)
        return find_open_deleted_files(pids, identity.pid, files.upper)

    def _end_commands(self, sandbox_id: str) -> None:
        identity = self._running_process(sandbox_id)
        if self._cgroups.hierarchies:
            # Only bubblewrap's monitor is in the host's pid namespace; sandboxes may create nested ones.
            host = process_control.pid_namespace(os.getpid())
            monitors = {
                pid for pid in self._cgroups.processes(sandbox_id) if process_control.pid_namespace(pid) == host
            }
            self._cgroups.kill(sandbox_id, spare=frozenset({identity.pid, *monitors}))
        else:
            process_control.kill_namespace_processes(identity.pid_namespace, spare=identity.pid)

    def _refuse_writes(self, sandbox_id: str, reason: str | None) -> None:
        notice = self._files(sandbox_id).uplinks / launch_plan.DISK_NOTICE
        if reason is None:
            notice.unlink(missing_ok=True)
            return
        notice.touch(mode=0o644)  # Without disk space for the text, the empty file still marks the state.
        notice.write_text(reason)

    def _remove(self, sandbox_id: str) -> None:
        files = self._files(sandbox_id)
        trash = self._sandboxes / f"{sandbox_files.TRASH_PREFIX}{sandbox_id}"
        facts = files.read_facts() or SandboxFiles(trash).read_facts()
        uid, pool = facts.get("uid"), self._uid_pool(bool(facts.get("root_mode")))
        identity = self._identity(sandbox_id)
        alive = identity is not None and identity.alive()
        grouped = sandbox_id in self._cgroups.sandboxes()
        if identity is not None and alive:
            process_control.kill_init_process(identity, thaw=lambda: self._cgroups.thaw(sandbox_id))
        if not alive or not grouped:
            # An interrupted start has no report yet, and a monitor may hang.
            process_control.kill_log_writers(files.log)
        if grouped:
            self._cgroups.kill(sandbox_id)
            self._cgroups.remove(sandbox_id)
        try:
            os.unlink(self._socket(sandbox_id))
        except FileNotFoundError:
            pass
        if files.directory.exists():
            sandbox_files.remove_sandbox_tree(trash)
            files.directory.rename(trash)
        sandbox_files.remove_sandbox_tree(trash)
        if pool and uid is not None:
            pool.release(uid)


def _instance(data: Path) -> str:
    """Return a name of this data directory for resources outside of it."""
    return hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise Unavailable("bubblewrap is missing: apt-get install bubblewrap")
    return found


async def _run_uncancelled(function: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
    """Run a function in a thread; a cancellation waits until it has ended."""
    task = asyncio.create_task(asyncio.to_thread(function, *arguments, **named))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()
        raise


def _last_line(error: subprocess.CalledProcessError) -> str:
    stderr: bytes = error.stderr or b""
    return stderr.decode(errors="replace").strip().rpartition("\n")[2][-500:] or str(error)


def _describe_start_failure(error: BaseException, tail: str) -> str:
    if isinstance(error, TimeoutError):
        failure = "the sandbox did not answer in time"
    elif isinstance(error, subprocess.CalledProcessError):
        failure = _last_line(error)
    else:
        failure = str(error)
    if "execvp /usr/bin/python3" in tail:
        return "the image has no /usr/bin/python3, which every image needs for Paddock's daemon"
    return f"{failure}: {tail}" if tail else failure
