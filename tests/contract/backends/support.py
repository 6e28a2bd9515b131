"""Sandboxes driven from plain test functions, and proof that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from paddock.model.sandbox import Image, SandboxSpec, SandboxStatus
from paddock.sandbox.daemon.client import CommandResult, DaemonClient, SandboxCommand
from paddock.sandbox.images.image_store import ImageStore
from paddock.sandbox.local import process_control
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.sandbox.local.sandbox_files import SandboxFiles

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[3]
ORDINARY_UID = 65_533
FIRST_SUBORDINATE_ID = 3_000_000_000
UIDS_PER_DIRECTORY = 500


def eventually(condition: Callable[[], T], timeout: float = 10.0) -> T:
    """Poll a condition until it is truthy, and return its value."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not happen within {timeout} seconds"
        time.sleep(0.005)
    return found


@dataclass(frozen=True)
class RunningSandbox:
    """One running sandbox."""

    backend: LocalBackend
    data: Path
    record: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def root_mode(self) -> bool:
        return bool(self.record["root_mode"])

    @property
    def files(self) -> SandboxFiles:
        return SandboxFiles(self.data / "boxes" / self.id)

    @property
    def first_process(self) -> int:
        """Host pid of the sandbox's init process."""
        return int(process_control.read_bwrap_report(self.files.report)["child-pid"])

    @property
    def monitor(self) -> int:
        """Host pid of the bubblewrap process that waits for the sandbox."""
        return parent_of(self.first_process)

    def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: str | None = None,
        user: str | int | None = None,
        timeout: float = 20.0,
    ) -> CommandResult:
        async def call_daemon() -> CommandResult:
            async with DaemonClient(self.backend.daemon_address(self.record)) as inside:
                return await inside.run(SandboxCommand(command, stdin=stdin, user=user))

        return asyncio.run(asyncio.wait_for(call_daemon(), timeout))

    def python(self, code: str, *arguments: str, timeout: float = 20.0) -> CommandResult:
        return self.run(["/usr/bin/python3", "-I", "-c", code, *arguments], timeout=timeout)

    def output(self, command: str | Sequence[str], *, user: str | int | None = None) -> str:
        """Return the output of a command that must succeed."""
        result = self.run(command, user=user)
        assert result.exit_code == 0, (result.stdout, result.stderr)
        return result.stdout.decode(errors="replace")

    def start(self, command: str) -> str:
        async def call_daemon() -> str:
            async with DaemonClient(self.backend.daemon_address(self.record)) as inside:
                return await inside.start(command)

        return asyncio.run(asyncio.wait_for(call_daemon(), 10))

    def write(self, path: str, content: bytes, mode: int = 755) -> None:
        async def call_daemon() -> None:
            async with DaemonClient(self.backend.daemon_address(self.record)) as inside:
                await inside.write_file(path, content, mode=mode)

        asyncio.run(asyncio.wait_for(call_daemon(), 20))

    def status(self) -> SandboxStatus:
        return asyncio.run(self.backend.status(self.record))

    def answers(self) -> bool:
        return self.run("echo here").stdout == b"here\n"


@dataclass
class LocalBackendHarness:
    """A backend with its own data directory; its sandboxes are removed at the end."""

    settings: LocalBackendSettings
    image: Image
    backend: LocalBackend = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self.backend = LocalBackend(self.settings)

    @property
    def data(self) -> Path:
        return self.settings.data

    def spec(self, **changes: Any) -> SandboxSpec:
        self._number += 1
        return SandboxSpec(
            **{"id": f"sandbox-{self._number}", "image": self.image, "token": secrets.token_hex(8), **changes}
        )

    def start(self, **changes: Any) -> RunningSandbox:
        record = self.do(self.backend.start(self.spec(**changes)))
        return RunningSandbox(self.backend, self.data, dict(record))

    def remove(self, running_sandbox: RunningSandbox) -> None:
        self.do(self.backend.remove(running_sandbox.id))

    def do(self, work: Coroutine[Any, Any, T], timeout: float = 60.0) -> T:
        return asyncio.run(asyncio.wait_for(work, timeout))

    @contextmanager
    def sandbox(self, **changes: Any) -> Iterator[RunningSandbox]:
        running_sandbox = self.start(**changes)
        try:
            yield running_sandbox
        finally:
            self.remove(running_sandbox)

    def close(self) -> None:
        for sandbox_id in self.do(self.backend.leftovers()):
            self.do(self.backend.remove(sandbox_id))
        for snapshot in self.do(self.backend.snapshots()):
            self.do(self.backend.delete_snapshot(snapshot))
        self.do(self.backend.close())


@contextmanager
def local_backend(directory: Path, image: Image, **changes: Any) -> Iterator[LocalBackendHarness]:
    """Yield a backend; assert at the end that nothing of its sandboxes is left on the machine."""
    data = directory / f"data-{secrets.token_hex(6)}"
    base = 1_300_000_000 + secrets.randbelow(1_000_000) * UIDS_PER_DIRECTORY
    made = LocalBackendHarness(
        replace(LocalBackendSettings(data=data, uid_base=base, uid_count=UIDS_PER_DIRECTORY), **changes), image
    )
    try:
        yield made
    finally:
        made.close()
    assert_nothing_left(made.settings)


def assert_nothing_left(settings: LocalBackendSettings) -> None:
    """Assert that no process, mount, control group, directory, uid or socket of a data directory is left."""
    mark = settings.data.name
    eventually(lambda: not list(_processes_of(settings)), 5)
    assert mark not in Path("/proc/self/mountinfo").read_text(), "a mount is left"
    for name in ("boxes", "snapshots", "sockets"):
        assert os.listdir(settings.data / name) == [], f"something is left in {name}"
    fresh = LocalBackend(settings)
    groups = [hierarchy.path for hierarchy in fresh._cgroups.hierarchies]
    assert asyncio.run(fresh.leftovers()) == []
    if fresh._uids is not None:
        assert fresh._uids.acquire() == settings.uid_base, "a uid is still in use"
        assert fresh._uid_ranges is not None
        first = fresh._uid_ranges.acquire()
        assert first == settings.uid_base + settings.uid_count, "a range of uids is still in use"
    asyncio.run(fresh.close())
    assert not [path for path in groups if path.exists()], "a control group is left"


def _processes_of(settings: LocalBackendSettings) -> Iterator[int]:
    mark = settings.data.name
    uids = range(settings.uid_base, settings.uid_base + settings.uid_count)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                mounts = Path(f"/proc/{entry}/mountinfo").read_text()
                files = [os.readlink(f"/proc/{entry}/fd/{name}") for name in os.listdir(f"/proc/{entry}/fd")]
                if os.stat(f"/proc/{entry}").st_uid in uids or any(mark in text for text in (mounts, *files)):
                    yield int(entry)
            except OSError:
                continue


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = parent_of(pid)
        except OSError:
            return False
    return False


def running(words: str) -> list[int]:
    """Return pids of processes with this text on their command line."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and words.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def host_image(directory: Path) -> Image:
    """Return the `host` image, which every machine has."""
    return ImageStore(directory, recipe_dirs=()).resolve("host")


class NoOrdinaryUserError(Exception):
    """No Python that an ordinary user could run was found."""


def ordinary_python() -> list[str]:
    """Return the command prefix that runs Python with these packages as an unprivileged user."""
    drop = ["setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups", "--"]
    site_packages = next(path for path in sys.path if path.endswith("site-packages"))
    search = os.pathsep.join([str(REPOSITORY / "src"), site_packages])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    probe = "import sys, pytest, paddock; print('%d.%d' % sys.version_info[:2])"
    for python in (sys.executable, f"/usr/bin/python{version}", "/usr/bin/python3"):
        words = [*drop, "env", f"PYTHONPATH={search}", "PYTHONDONTWRITEBYTECODE=1", python]
        completed = subprocess.run([*words, "-c", probe], capture_output=True, text=True, check=False, cwd="/")
        if completed.returncode == 0 and completed.stdout.strip() == version:
            return words
    raise NoOrdinaryUserError(
        f"an ordinary user can run no Python {version} with these packages: {sys.executable} is out of its reach and "
        f"/usr/bin/python3 is missing or of another version"
    )


@dataclass(frozen=True)
class Tally:
    """Result of a test run as an unprivileged user."""

    passed: int
    skipped: int
    failed: int
    report: str


GIVE_SUBORDINATE_IDS = """
set -e
for name in passwd subuid subgid; do
    cat "/etc/$name" > "$1/$name" 2>/dev/null || true
done
echo "ordinary:x:$2:$2::/nonexistent:/bin/sh" >> "$1/passwd"
for name in passwd subuid subgid; do
    [ "$name" = passwd ] || echo "ordinary:$3:65536" >> "$1/$name"
    mount --bind "$1/$name" "/etc/$name"
done
shift 3
exec "$@"
"""
"""Gives an account and subordinate ids to an unprivileged user, in a mount namespace only."""


def run_as_ordinary_user(
    *arguments: str, timeout: float = 240.0, subordinate_ids: bool = False, env: Mapping[str, str] | None = None
) -> Tally:
    """Run pytest in this repository as an unprivileged user with a temporary home directory."""
    words = ordinary_python()
    with (
        tempfile.TemporaryDirectory(prefix="paddock-accounts-") as accounts,
        tempfile.TemporaryDirectory(prefix="paddock-ordinary-") as home,
    ):
        os.chown(home, ORDINARY_UID, ORDINARY_UID)
        position = words.index("env") + 1
        variables = {"HOME": home, "USER": "ordinary", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **(env or {})}
        words[position:position] = ["-i", *(f"{name}={value}" for name, value in variables.items())]
        if subordinate_ids:
            private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", GIVE_SUBORDINATE_IDS, "sh"]
            words = [*private, accounts, str(ORDINARY_UID), str(FIRST_SUBORDINATE_ID), *words]
            os.chmod(accounts, 0o755)
        pytest = ["-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={home}/tests", "-q", "-rs", *arguments]
        done = subprocess.run(
            [*words, *pytest], cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False
        )

    def count(outcome: str) -> int:
        found = re.search(rf"(\d+) {outcome}", done.stdout.rstrip().rpartition("\n")[2])
        return int(found[1]) if found else 0

    failed = count("failed") + count("error") + (0 if done.returncode in (0, 1) else 1)
    return Tally(count("passed"), count("skipped"), failed, done.stdout + done.stderr)
