"""Control groups of one machine, whichever layout it has: v1, v2 or both at once.

A sandbox gets one group in each useful hierarchy: for memory, cpu and pids limits, and for freezing and killing where
the kernel supports it. Without permission to create groups, callers fall back to per-process limits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.model.sandbox import SandboxLimits

CPU_PERIOD = 100_000
LEAF = "server"
CONTROLLERS = ("memory", "cpu", "pids", "freezer")


@dataclass(frozen=True)
class CgroupHierarchy:
    """A mounted cgroup hierarchy with its used controllers."""

    path: Path
    """Parent directory of the sandboxes' groups."""
    version: int
    controllers: frozenset[str]


@dataclass(frozen=True)
class Cgroups:
    """Control groups of all sandboxes of one data directory."""

    hierarchies: tuple[CgroupHierarchy, ...] = ()
    reason: str = ""
    """Reason for missing groups."""
    controllers: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        found = frozenset[str]().union(*(h.controllers for h in self.hierarchies))
        object.__setattr__(self, "controllers", found)

    def create(self, sandbox_id: str) -> None:
        for directory in self.process_groups(sandbox_id):
            directory.mkdir(parents=True, exist_ok=True)

    def process_groups(self, sandbox_id: str) -> list[Path]:
        """Return the groups of a sandbox's processes.

        In version 2 they are one level below the limits: a sandbox of an ordinary user owns its groups, and a program
        with namespaces of its own could mount and write its own group and those below.
        """
        return [h.path / sandbox_id / "box" if h.version == 2 else h.path / sandbox_id for h in self.hierarchies]

    def limit(self, sandbox_id: str, limits: SandboxLimits) -> None:
        for hierarchy in self.hierarchies:
            for name, value in _settings(hierarchy, limits):
                _write(hierarchy.path / sandbox_id / name, value)

    def freeze(self, sandbox_id: str, frozen: bool, timeout: float = 10.0) -> None:
        """Freeze or thaw, and wait until every process has. Raises `TimeoutError`."""
        hierarchy = self._with("freezer")
        directory = hierarchy.path / sandbox_id
        if hierarchy.version == 2:
            _write(directory / "cgroup.freeze", "1" if frozen else "0")
        else:
            _write(directory / "freezer.state", "FROZEN" if frozen else "THAWED")
        deadline = time.monotonic() + timeout
        while self.frozen(sandbox_id) != frozen:
            if time.monotonic() > deadline:
                raise TimeoutError("the sandbox's processes could not be frozen")
            time.sleep(0.002)

    def frozen(self, sandbox_id: str) -> bool:
        hierarchy = self._with("freezer")
        directory = hierarchy.path / sandbox_id
        if hierarchy.version == 2:
            return _flat(directory / "cgroup.events").get("frozen") == 1
        return (directory / "freezer.state").read_text().strip() == "FROZEN"

    def processes(self, sandbox_id: str) -> set[int]:
        pids: set[int] = set()
        for hierarchy in self.hierarchies:
            for procs in _procs_files(hierarchy.path / sandbox_id):
                try:
                    pids.update(int(line) for line in procs.read_text().split())
                except FileNotFoundError:
                    continue
        return pids

    def kill(self, sandbox_id: str, spare: frozenset[int] = frozenset(), timeout: float = 10.0) -> None:
        """Kill every process of the sandbox except `spare`. Raises `TimeoutError`."""
        deadline = time.monotonic() + timeout
        while victims := self.processes(sandbox_id) - spare:
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not spare:
                self.thaw(sandbox_id)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of sandbox {sandbox_id} did not die: {sorted(victims)}")
            time.sleep(0.002)

    def remove(self, sandbox_id: str, timeout: float = 5.0) -> None:
        deadline = time.monotonic() + timeout
        for hierarchy in self.hierarchies:
            for directory in _deepest_first(hierarchy.path / sandbox_id):
                while True:
                    try:
                        directory.rmdir()
                        break
                    except FileNotFoundError:
                        break
                    except OSError:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(0.002)

    def sandboxes(self) -> set[str]:
        return {entry.name for h in self.hierarchies if h.path.is_dir() for entry in h.path.iterdir() if entry.is_dir()}

    def out_of_memory_kills(self, sandbox_id: str) -> int:
        for hierarchy in self.hierarchies:
            if "memory" in hierarchy.controllers:
                name = "memory.events" if hierarchy.version == 2 else "memory.oom_control"
                return _flat(hierarchy.path / sandbox_id / name).get("oom_kill", 0)
        return 0

    def dissolve(self) -> None:
        """Remove the parent groups, once no sandbox is left."""
        for hierarchy in self.hierarchies:
            for directory in (hierarchy.path, hierarchy.path.parent):
                try:
                    directory.rmdir()
                except OSError:
                    break

    @property
    def freezable(self) -> bool:
        return "freezer" in self.controllers

    def _with(self, controller: str) -> CgroupHierarchy:
        return next(h for h in self.hierarchies if controller in h.controllers)

    def thaw(self, sandbox_id: str) -> None:
        """Thaw frozen processes, which cannot die in a v1 group."""
        if not self.freezable:
            return
        hierarchy = self._with("freezer")
        name, value = ("cgroup.freeze", "0") if hierarchy.version == 2 else ("freezer.state", "THAWED")
        try:
            _write(hierarchy.path / sandbox_id / name, value)
        except FileNotFoundError:
            pass


def find_cgroups(instance: str, parent: str | None = None) -> Cgroups:
    """Find where this process may create groups, and create the parents of the sandboxes' groups.

    `parent` is a path below each hierarchy's mount point; by default root uses `/paddock`, and an ordinary user its
    own group where that was delegated to it.
    """
    hierarchies: list[CgroupHierarchy] = []
    wanted = set(CONTROLLERS)
    problem = "no control groups are mounted"
    for mount_point, version, offered in _mounted():
        controllers = offered & wanted
        freezer = {"freezer"} & wanted if version == 2 else set()  # All v2 groups support freezing.
        if not controllers | freezer:
            continue
        try:
            base = _base(mount_point, version, parent)
            if version == 2:
                base, controllers = _prepare_v2(mount_point, base, controllers)
                controllers |= freezer
            if not controllers:
                continue
            path = base / instance
            path.mkdir(parents=True, exist_ok=True)
            if version == 2:
                _delegate(path, controllers - {"freezer"})
            _probe(path)
        except OSError as error:
            problem = f"{mount_point}: {error.strerror or error}"
            continue
        wanted -= controllers
        hierarchies.append(CgroupHierarchy(path, version, frozenset(controllers)))
    return Cgroups(tuple(hierarchies), "" if hierarchies else problem)


def _settings(hierarchy: CgroupHierarchy, limits: SandboxLimits) -> Iterator[tuple[str, str]]:
    second = hierarchy.version == 2
    if limits.memory is not None and "memory" in hierarchy.controllers:
        yield ("memory.max" if second else "memory.limit_in_bytes"), str(limits.memory)
        if second:
            yield "memory.swap.max", "0"
    if limits.pids is not None and "pids" in hierarchy.controllers:
        yield "pids.max", str(limits.pids)
    if limits.cpu is not None and "cpu" in hierarchy.controllers:
        quota = max(1000, int(limits.cpu * CPU_PERIOD))
        if second:
            yield "cpu.max", f"{quota} {CPU_PERIOD}"
        else:
            yield "cpu.cfs_period_us", str(CPU_PERIOD)
            yield "cpu.cfs_quota_us", str(quota)


def _mounted() -> list[tuple[Path, int, set[str]]]:
    """Return mounted hierarchies with controllers, v1 first, because v1 controllers are absent in v2."""
    found: list[tuple[Path, int, set[str]]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        mount_point = Path(left.split(" ")[4])
        if kind == "cgroup":
            found.append((mount_point, 1, set(options.split(",")) & set(CONTROLLERS)))
        elif kind == "cgroup2":
            offered = (mount_point / "cgroup.controllers").read_text().split()
            found.append((mount_point, 2, set(offered) & set(CONTROLLERS)))
    return sorted(found, key=lambda item: item[1])


def _base(mount_point: Path, version: int, parent: str | None) -> Path:
    if parent is not None:
        return mount_point / parent.strip("/")
    if os.geteuid() == 0:
        return mount_point / "paddock"
    own = mount_point / _own_group(version).strip("/")
    return (own.parent if own.name == LEAF else own) / "paddock"


def _own_group(version: int) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if version == 2 and number == "0" and not names:
            return path
    raise PermissionError(1, "an ordinary user has no group of its own in cgroup v1")


def _prepare_v2(mount_point: Path, base: Path, controllers: set[str]) -> tuple[Path, set[str]]:
    """Delegate controllers from the mount point to `base`, without the ones that a level withholds."""
    base.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        _move_to_leaf_group(base.parent)
    levels = [mount_point, *(mount_point / part for part in _ancestors(base.relative_to(mount_point)))]
    for level in levels:
        controllers = controllers & set((level / "cgroup.controllers").read_text().split())
        _delegate(level, controllers)
    return base, controllers


def _move_to_leaf_group(group: Path) -> None:
    """Move this process to a leaf group, because v2 groups with processes cannot delegate controllers."""
    leaf = group / LEAF
    leaf.mkdir(exist_ok=True)
    _write(leaf / "cgroup.procs", str(os.getpid()))


def _ancestors(relative: Path) -> list[Path]:
    return [*reversed([p for p in relative.parents if p != Path()]), relative]


def _delegate(level: Path, controllers: set[str]) -> None:
    active = set((level / "cgroup.subtree_control").read_text().split())
    for controller in controllers - active:
        _write(level / "cgroup.subtree_control", f"+{controller}")


def _probe(path: Path) -> None:
    probe = path / "probe"
    probe.mkdir(exist_ok=True)
    probe.rmdir()


def _write(path: Path, value: str) -> None:
    with path.open("w") as file:
        file.write(value)


def _flat(path: Path) -> Mapping[str, int]:
    try:
        pairs = (line.split() for line in path.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    except OSError:
        return {}


def _deepest_first(directory: Path) -> list[Path]:
    return [Path(path) for path, _, _ in os.walk(directory, topdown=False)]


def _procs_files(directory: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(directory):
        yield Path(path) / "cgroup.procs"
