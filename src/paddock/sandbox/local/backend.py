"""Boxes on bubblewrap: no daemon, no root needed, no network."""

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

from paddock.errors import BoxError, BoxGone, BoxStartError, Conflict, SnapshotNotFound, Unavailable, Unsupported
from paddock.model.sandbox import Address, BoxHealth, BoxSpec, BoxStatus, Limits
from paddock.sandbox.base import Backend, Feature, Finding, Record
from paddock.sandbox.client import Inside
from paddock.sandbox.local import cgroups, examine, layout, plan, processes, seccomp
from paddock.sandbox.local.launcher import FIRST_KEPT, Launcher
from paddock.sandbox.local.layout import BoxFiles
from paddock.sandbox.local.processes import Identity
from paddock.sandbox.local.uids import Uids
from paddock.sandbox.zipapp import pack

P = ParamSpec("P")
MEASURE_AT_ONCE = 8


@dataclass(frozen=True)
class LocalSettings:
    """What the backend is told by configuration."""

    data: Path
    shared: Path | None = None
    """A directory every box sees read-only as /shared."""
    uid_base: int = 1_200_000_000
    uid_count: int = 65_536
    cgroup_parent: str | None = None
    start_timeout: float = 30.0
    defaults: Limits = Limits(cpu=2, memory=2 * 2**30, pids=512, disk=10 * 2**30, files=65_536)
    filter_system_calls: bool = True


class LocalBackend(Backend):
    """Runs each box as a bubblewrap process tree that outlives this one."""

    name: ClassVar[str] = "local"

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._boxes = settings.data / "boxes"
        self._snapshots = settings.data / "snapshots"
        sockets = settings.data / "sockets"
        for directory in (settings.data, self._boxes, self._snapshots, sockets):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        layout.spread(self._boxes)
        # A Unix socket's path has room for 107 bytes, a data directory's may be longer: go through a descriptor.
        self._sockets = os.open(sockets, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._boot = processes.boot_id()
        self._cgroups = cgroups.find(_instance(settings.data), settings.cgroup_parent)
        self._inside = pack(settings.data / "inside")
        self._below = settings.data / "below"
        layout.lay_out(self._below, plan.directories(settings.shared), plan.FILES)
        self._launcher = Launcher()
        # Threads of their own: a sandbox can make measuring slow, and everything else must not wait for it.
        self._measuring = ThreadPoolExecutor(MEASURE_AT_ONCE, thread_name_prefix="measure")
        self._uids: Uids | None = None
        if os.geteuid() == 0:
            taken = (BoxFiles(path).read_facts().get("uid") for path in self._boxes.iterdir())
            self._uids = Uids(settings.uid_base, settings.uid_count, {uid for uid in taken if uid is not None})

    @property
    def features(self) -> frozenset[Feature]:
        found = {Feature.PAUSE, Feature.SNAPSHOT, Feature.SURVIVE, Feature.MOUNTS, Feature.HOLES}
        if "memory" in self._cgroups.controllers:
            found.add(Feature.MEMORY_LIMIT)
        if "cpu" in self._cgroups.controllers:
            found.add(Feature.CPU_LIMIT)
        return frozenset(found)

    async def start(self, spec: BoxSpec) -> Record:
        record = self._reserve(spec)  # Quicker than a thread, and never cancelled half-way.
        try:
            await _to_the_end(self._fill, spec, record)
            await self._launch(spec, record)
            await self._answered(record)
        except BaseException as error:
            tail = self._files(spec.id).log_tail()
            await asyncio.shield(self.remove(spec.id))
            if isinstance(error, (BoxError, TimeoutError, subprocess.CalledProcessError)):
                raise BoxStartError(_why_not_started(error, tail)) from error
            raise
        return record

    def address(self, record: Record) -> Address:
        return Address(token=record["token"], socket=Path(self._socket(record["id"])))

    def holes(self, record: Record) -> Path:
        return self._files(record["id"]).holes

    async def status(self, record: Record) -> BoxStatus:
        return await asyncio.to_thread(self._status, record["id"])

    async def wait(self, record: Record) -> BoxStatus:
        identity = self._identity(record["id"])
        if identity is not None:
            await processes.ended(identity)
        return await self.status(record)

    async def limit(self, record: Record, limits: Limits) -> None:
        await asyncio.to_thread(self._limit, record["id"], limits)

    async def pause(self, record: Record) -> None:
        await asyncio.to_thread(self._freeze, record["id"], True)

    async def resume(self, record: Record) -> None:
        await asyncio.to_thread(self._freeze, record["id"], False)

    async def snapshot(self, record: Record, snapshot_id: str) -> None:
        if (self._snapshots / snapshot_id).exists():
            raise Conflict(f"snapshot {snapshot_id} exists already")
        try:
            await _to_the_end(self._keep, record, snapshot_id)
        except asyncio.CancelledError:
            await self.delete_snapshot(snapshot_id)
            raise

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await asyncio.to_thread(layout.remove_tree, self._snapshots / snapshot_id)

    async def snapshots(self) -> Sequence[str]:
        return sorted(path.name for path in self._snapshots.iterdir() if not path.name.startswith("."))

    async def disk_used(self, record: Record) -> int:
        files = self._files(record["id"])
        places = (files.upper, files.workspace, files.log)
        return await asyncio.get_running_loop().run_in_executor(self._measuring, layout.disk_used, *places)

    async def end_commands(self, record: Record) -> None:
        await asyncio.to_thread(self._end_commands, record["id"])

    async def refuse_writes(self, record: Record, reason: str | None) -> None:
        await asyncio.to_thread(self._refuse_writes, record["id"], reason)

    async def remove(self, box_id: str) -> None:
        await asyncio.to_thread(self._remove, box_id)

    async def leftovers(self) -> Sequence[str]:
        directories = {path.name.removeprefix(layout.TRASH) for path in self._boxes.iterdir()}
        return sorted(directories | self._cgroups.boxes())

    async def examine(self) -> Sequence[Finding]:
        return await asyncio.to_thread(examine.findings, self._settings.data, self._cgroups)

    async def close(self) -> None:
        if not await self.leftovers():
            self._cgroups.dissolve()
        self._launcher.close()
        self._measuring.shutdown(wait=False, cancel_futures=True)
        os.close(self._sockets)

    def _files(self, box_id: str) -> BoxFiles:
        return BoxFiles(self._boxes / box_id)

    def _socket(self, box_id: str) -> str:
        return f"/proc/self/fd/{self._sockets}/{box_id}"

    def _identity(self, box_id: str) -> Identity | None:
        files = self._files(box_id)
        return processes.identity_of(processes.bwrap_report(files.report), files.read_facts().get("boot", ""))

    def _living(self, box_id: str) -> Identity:
        identity = self._identity(box_id)
        if identity is None or not identity.alive():
            raise BoxGone(f"sandbox {box_id} has ended")
        return identity

    def _reserve(self, spec: BoxSpec) -> dict[str, Any]:
        uid = self._uids.take() if self._uids else None
        try:
            self._files(spec.id).create({"uid": uid, "boot": self._boot})
        except OSError as error:
            if self._uids:
                self._uids.release(uid)
            if isinstance(error, FileExistsError):
                raise BoxStartError(f"box {spec.id} exists already") from None
            raise Unavailable(f"the data directory cannot be written: {error.strerror}") from error
        return {"id": spec.id, "token": spec.token, "uid": uid}

    def _fill(self, spec: BoxSpec, record: Record) -> None:
        files = self._files(spec.id)
        uid: int | None = record["uid"]
        if spec.snapshot:
            self._restore(spec.snapshot, files, uid)
        if uid is not None:
            os.chown(files.workspace, uid, uid)
        self._cgroups.create(spec.id)
        self._cgroups.limit(spec.id, plan.merged(self._settings.defaults, spec.limits))

    async def _launch(self, spec: BoxSpec, record: Record) -> None:
        files = self._files(spec.id)
        limits = plan.merged(self._settings.defaults, spec.limits)
        with ExitStack() as held:
            log = held.enter_context(files.log.open("ab")).fileno()
            kept = [
                held.enter_context(self._listen(spec.id)).fileno(),
                held.enter_context(files.report.open("ab")).fileno(),
            ]
            listener, report, config, arguments, *more = range(FIRST_KEPT, FIRST_KEPT + 7)
            programs = seccomp.programs(spec.image.nested_namespaces) if self._settings.filter_system_calls else ()
            filters, output = more[: len(programs)], more[len(programs)]
            early = plan.early_service(spec.image, output)
            inside = plan.inside_config(spec, listener, limits, self._cgroups.controllers, early)
            for name, content in (
                ("inside", json.dumps(inside).encode()),
                ("arguments", plan.bwrap_arguments(spec, limits, filters, report)),
                *(("seccomp", program) for program in programs),
            ):
                kept.append(held.enter_context(processes.memory_file(name, content)))
            if early is not None:
                kept.append(held.enter_context(processes.two_way_pipe()))
            whole = {
                "lower": str(spec.image.root),
                "below": str(self._below),
                **{name: str(getattr(files, name)) for name in ("upper", "work", "root")},
                "home": spec.image.user.home,
                "image_uid": spec.image.user.uid,
                "image_gid": spec.image.user.gid,
                "host_uid": record["uid"],
                "cgroups": [str(directory) for directory in self._cgroups.homes(spec.id)],
                "rlimits": plan.outer_rlimits(limits),
                "files": plan.etc_files(spec.hostname),
                "binds": plan.binds(spec, files, self._inside, self._settings.shared),
                "argv": plan.bwrap_command(_bwrap(), arguments, config, early),
            }
            if not await self._launcher.launch(whole, log, kept):
                raise BoxStartError("the box could not be set up")

    def _listen(self, box_id: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.bind(self._socket(box_id))
        listener.listen(128)
        return listener

    async def _answered(self, record: Record) -> None:
        # Only the box holds the listening socket now, so when it dies this ends at once instead of timing out.
        async with Inside(self.address(record)) as inside, asyncio.timeout(self._settings.start_timeout):
            await inside.ping()

    def _status(self, box_id: str) -> BoxStatus:
        kills = self._cgroups.out_of_memory_kills(box_id)
        report = processes.bwrap_report(self._files(box_id).report)
        identity = self._identity(box_id)
        if identity is not None and identity.alive():
            paused = self._cgroups.frozen(box_id) if self._cgroups.freezable else processes.stopped(identity.pid)
            return BoxStatus(health=BoxHealth.PAUSED if paused else BoxHealth.RUNNING, out_of_memory_kills=kills)
        code = report.get("exit-code")
        reason = "out_of_memory" if kills and code == 137 else "exited" if code in (0, 143) else "killed"
        message = f"the box's first process ended with code {code}" if code is not None else "the box is gone"
        return BoxStatus(
            health=BoxHealth.GONE, exit_code=code, reason=reason, message=message, out_of_memory_kills=kills
        )

    def _limit(self, box_id: str, limits: Limits) -> None:
        self._living(box_id)
        try:
            self._cgroups.limit(box_id, limits)
        except OSError as error:
            raise Conflict(f"sandbox {box_id} cannot be limited to that: {error.strerror}") from error

    def _freeze(self, box_id: str, frozen: bool) -> None:
        identity = self._living(box_id)
        if self._cgroups.freezable:
            self._cgroups.freeze(box_id, frozen)
        elif frozen:
            processes.stop_all(identity.pid_namespace)
        else:
            processes.continue_all(identity.pid_namespace)

    def _keep(self, record: Record, snapshot_id: str) -> None:
        files = self._files(record["id"])
        was_frozen = self._status(record["id"]).health is BoxHealth.PAUSED
        partial = self._snapshots / f".{snapshot_id}"
        layout.remove_tree(partial)
        self._freeze(record["id"], True)
        try:
            partial.mkdir(mode=0o700)
            for name in layout.WRITTEN:
                layout.copy_tree(files.directory / name, partial / name)
            (partial / "snapshot.json").write_text(json.dumps({"uid": record["uid"]}))
            partial.rename(self._snapshots / snapshot_id)
        except BaseException as error:
            layout.remove_tree(partial)
            if isinstance(error, subprocess.CalledProcessError):
                raise BoxError(f"the box's files could not be copied: {_last_line(error)}") from error
            raise
        finally:
            if not was_frozen:
                self._freeze(record["id"], False)

    def _restore(self, snapshot_id: str, files: BoxFiles, uid: int | None) -> None:
        kept = self._snapshots / snapshot_id
        try:
            before = json.loads((kept / "snapshot.json").read_text())["uid"]
        except FileNotFoundError:
            raise SnapshotNotFound(f"there is no snapshot {snapshot_id}") from None
        if (before is None) != (uid is None):
            raise Unsupported("a snapshot made by root is only restored by root, and a user's by that user")
        for name in layout.WRITTEN:
            (files.directory / name).rmdir()
            layout.copy_tree(kept / name, files.directory / name)
            if uid is not None:
                layout.change_owner(files.directory / name, before, uid)

    def _end_commands(self, box_id: str) -> None:
        identity = self._living(box_id)
        if self._cgroups.hierarchies:
            # Only bubblewrap's monitor is in the host's pid namespace; a box may have made others below its own.
            host = processes.pid_namespace(os.getpid())
            monitors = {pid for pid in self._cgroups.processes(box_id) if processes.pid_namespace(pid) == host}
            self._cgroups.kill(box_id, spare=frozenset({identity.pid, *monitors}))
        else:
            processes.kill_all(identity.pid_namespace, spare=identity.pid)

    def _refuse_writes(self, box_id: str, reason: str | None) -> None:
        notice = self._files(box_id).holes / plan.DISK_NOTICE
        if reason is None:
            notice.unlink(missing_ok=True)
            return
        notice.touch(mode=0o644)  # Even without room for the words, the notice is there.
        notice.write_text(reason)

    def _remove(self, box_id: str) -> None:
        files = self._files(box_id)
        trash = self._boxes / f"{layout.TRASH}{box_id}"
        uid = files.read_facts().get("uid", BoxFiles(trash).read_facts().get("uid"))
        identity = self._identity(box_id)
        alive = identity is not None and identity.alive()
        grouped = box_id in self._cgroups.boxes()
        if identity is not None and alive:
            processes.kill_first(identity, thaw=lambda: self._cgroups.thaw(box_id))
        if not alive or not grouped:
            # A start that was broken off has not said yet what it started, and a monitor may hang.
            processes.kill_writers(files.log)
        if grouped:
            self._cgroups.kill(box_id)
            self._cgroups.remove(box_id)
        try:
            os.unlink(self._socket(box_id))
        except FileNotFoundError:
            pass
        if files.directory.exists():
            layout.remove_tree(trash)
            files.directory.rename(trash)
        layout.remove_tree(trash)
        if self._uids and uid is not None:
            self._uids.release(uid)


def _instance(data: Path) -> str:
    """A name for this data directory, for things that live outside it."""
    return hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]


def _bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise Unavailable("bubblewrap is missing: apt-get install bubblewrap")
    return found


async def _to_the_end(function: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
    """Run a function in a thread; when cancelled, see it end first, so that it does not go on unseen."""
    task = asyncio.create_task(asyncio.to_thread(function, *arguments, **named))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()
        raise


def _last_line(error: subprocess.CalledProcessError) -> str:
    said: bytes = error.stderr or b""
    return said.decode(errors="replace").strip().rpartition("\n")[2][-500:] or str(error)


def _why_not_started(error: BaseException, tail: str) -> str:
    if isinstance(error, TimeoutError):
        what = "the box did not answer in time"
    elif isinstance(error, subprocess.CalledProcessError):
        what = _last_line(error)
    else:
        what = str(error)
    if "execvp /usr/bin/python3" in tail:
        return "the image has no /usr/bin/python3, which every image needs for Paddock's daemon"
    return f"{what}: {tail}" if tail else what
