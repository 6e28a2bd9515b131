# ruff: noqa: ASYNC110, ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""What every backend must do, as checks that any backend can run against itself.

A plugin's test file needs one class and two fixtures:

    from paddock.sandbox.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        pass

    @pytest.fixture
    def make_backend(tmp_path):             # called more than once: each object must find the others' boxes
        return lambda: MyBackend(tmp_path)

    @pytest.fixture
    def image():                            # with python3 and a shell
        return ...

Nothing here needs pytest to be imported, nor any plugin of it to run. A check that asks for something the backend says
it cannot do on this machine is skipped, and the skip says so.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import secrets
import socket
import unittest
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from paddock.errors import BoxError, BoxGone, BoxStartError, NotFound, PaddockError, SnapshotNotFound
from paddock.model.sandbox import BoxHealth, BoxSpec, BoxStatus, Hole, Image, Limits, Mount
from paddock.sandbox.base import Backend, Feature, Record
from paddock.sandbox.client import Command, Inside, Result

MIB = 2**20
WHOLE_CHECK = 90.0
"""Seconds after which a check has failed, whatever it waits for."""
SOON = 15.0

T = TypeVar("T")
MakeBackend = Callable[[], Backend]


@dataclass(frozen=True)
class Box:
    """A box that a check has started."""

    id: str
    record: Record
    inside: Inside

    async def run(self, command: str | Command) -> Result:
        return await asyncio.wait_for(self.inside.run(command), SOON)

    async def text(self, command: str | Command) -> str:
        """What a command that must succeed writes."""
        result = await self.run(command)
        assert result.exit_code == 0, f"{command}: {result}"
        return result.stdout.decode().strip()

    async def python(self, code: str) -> str:
        return await self.text(Command(["python3", "-c", code]))


@dataclass
class Bench:
    """The backend under test, and the boxes and snapshots that go when the check is over."""

    make_backend: MakeBackend
    image: Image
    backend: Backend = field(init=False)
    prefix: str = field(default_factory=lambda: f"check-{secrets.token_hex(3)}")
    _boxes: list[Box] = field(default_factory=list)
    _backends: list[Backend] = field(default_factory=list)
    _snapshots: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.backend = self.another_backend()

    def another_backend(self) -> Backend:
        """A second object for the same boxes, as a server makes after a restart."""
        made = self.make_backend()
        self._backends.append(made)
        return made

    def needs(self, feature: Feature) -> None:
        if feature not in self.backend.features:
            raise unittest.SkipTest(f"backend {self.backend.name} says it has no {feature.value} on this machine")

    def spec(self, **changes: Any) -> BoxSpec:
        basic = {"id": self.new_id(), "image": self.image, "token": secrets.token_hex(16)}
        return BoxSpec(**{**basic, **changes})

    def new_id(self) -> str:
        return f"{self.prefix}-{secrets.token_hex(4)}"

    def new_snapshot_id(self) -> str:
        self._snapshots.append(self.new_id())
        return self._snapshots[-1]

    async def start(self, **changes: Any) -> Box:
        spec = self.spec(**changes)
        record = await self.backend.start(spec)
        return self.hold(spec.id, record)

    def hold(self, box_id: str, record: Record) -> Box:
        box = Box(box_id, record, Inside(self.backend.address(record)))
        self._boxes.append(box)
        return box

    async def own_leftovers(self) -> list[str]:
        return [box_id for box_id in await self.backend.leftovers() if box_id.startswith(self.prefix)]

    async def end(self) -> None:
        for box in self._boxes:
            await box.inside.close()
            await self.backend.remove(box.id)
        for snapshot_id in self._snapshots:
            await self.backend.delete_snapshot(snapshot_id)
        left = await self.own_leftovers()
        for backend in self._backends:
            await backend.close()
        assert left == [], "boxes are left that were removed"


async def eventually(condition: Callable[[], Awaitable[T]], timeout: float = SOON) -> T:
    """Ask until the answer is true, and return it."""
    async with asyncio.timeout(timeout):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
    return found


def check(body: Callable[[Any, Bench], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a check a plain test function of the fixtures `make_backend` and `image`."""

    def test(self: object, make_backend: MakeBackend, image: Image) -> None:
        async def whole() -> None:
            bench = Bench(make_backend, image)
            try:
                async with asyncio.timeout(WHOLE_CHECK):
                    await body(self, bench)
            finally:
                await bench.end()

        asyncio.run(whole())

    test.__name__ = body.__name__
    test.__qualname__ = body.__qualname__
    test.__doc__ = inspect.getdoc(body)
    return test


class BackendConformance:
    """The checks. Subclass it under a name that pytest collects."""

    def hole_directory(self, backend: Backend, record: Record) -> Path:
        """Where the host puts the socket of a service that the box may reach; override it if it is elsewhere."""
        place: Path = backend.holes(record)  # type: ignore[attr-defined]
        return place

    # Starting

    @check
    async def test_a_started_box_answers(self, bench: Bench) -> None:
        """`start` returns once `inside` answers."""
        box = await bench.start()
        await box.inside.ping(timeout=2)
        assert (await bench.backend.status(box.record)).health is BoxHealth.RUNNING

    @check
    async def test_the_record_is_json_and_enough_to_reach_the_box(self, bench: Bench) -> None:
        """A caller stores the record as JSON; what comes back from the store must serve."""
        box = await bench.start()
        stored = json.loads(json.dumps(dict(box.record)))
        async with Inside(bench.backend.address(stored)) as inside:
            await inside.ping()

    @check
    async def test_a_wrong_token_is_refused(self, bench: Bench) -> None:
        """Nobody talks to a box without its token."""
        box = await bench.start()
        address = bench.backend.address(box.record).model_copy(update={"token": "wrong"})
        async with Inside(address) as inside:
            try:
                await inside.run("true")
            except PaddockError:
                return
        raise AssertionError("a command ran with a wrong token")

    @check
    async def test_programs_see_the_environment_of_image_and_box(self, bench: Bench) -> None:
        """The box's own variables win over the image's; a command's own win over both."""
        image = bench.image.model_copy(update={"env": {**bench.image.env, "ONE": "image", "TWO": "image"}})
        box = await bench.start(image=image, env={"TWO": "box", "THREE": "box ä\nline"})
        shown = await box.python("import os; print([os.environ.get(n) for n in ('ONE', 'TWO', 'THREE')])")
        assert shown == str(["image", "box", "box ä\nline"])
        assert await box.text(Command("echo $TWO", env={"TWO": "command"})) == "command"

    @check
    async def test_nothing_of_the_servers_environment_leaks(self, bench: Bench) -> None:
        """A secret in the server's environment is not in the box's."""
        os.environ["PADDOCK_CONFORMANCE_SECRET"] = "leak"  # noqa: S105
        try:
            box = await bench.start()
        finally:
            del os.environ["PADDOCK_CONFORMANCE_SECRET"]
        assert "PADDOCK_CONFORMANCE_SECRET" not in await box.text("env")

    @check
    async def test_programs_run_as_the_images_user_in_the_workspace(self, bench: Bench) -> None:
        """Uid, gid, home and working directory are what the image and the contract say."""
        box = await bench.start()
        user = bench.image.user
        shown = await box.text('echo "$(id -u) $(id -g) $HOME $(pwd)"')
        assert shown == f"{user.uid} {user.gid} {user.home} /workspace"

    @check
    async def test_home_workspace_and_tmp_can_be_written(self, bench: Bench) -> None:
        """The box's user owns where it works."""
        box = await bench.start()
        places = "$HOME /workspace /tmp /var/tmp /dev/shm"
        await box.text(f"for d in {places}; do echo x > $d/probe && rm $d/probe || exit 1; done")

    @check
    async def test_the_hostname_is_the_one_asked_for(self, bench: Bench) -> None:
        """Programs that ask for the machine's name get the box's."""
        box = await bench.start(hostname="pen-7")
        assert await box.python("import socket; print(socket.gethostname())") == "pen-7"

    @check
    async def test_the_entrypoint_runs(self, bench: Bench) -> None:
        """What the box was started for is started, in the workspace."""
        box = await bench.start(entrypoint=("sh", "-c", "echo $0 > entered; exec sleep 600", "word two"))

        async def written() -> bool:
            return (await box.run("cat /workspace/entered")).stdout == b"word two\n"

        await eventually(written)

    # Commands

    @check
    async def test_a_failing_command_is_a_result(self, bench: Bench) -> None:
        """An exit code is no error of the box."""
        box = await bench.start()
        result = await box.run("echo out; echo err >&2; exit 7")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")

    @check
    async def test_a_command_that_does_not_exist_is_a_result(self, bench: Bench) -> None:
        """So is a command that cannot be found."""
        box = await bench.start()
        assert (await box.run("no-such-program-anywhere")).exit_code == 127

    @check
    async def test_a_dead_box_is_an_error(self, bench: Bench) -> None:
        """When the box itself is gone, `BoxGone` says so."""
        box = await bench.start()
        await bench.backend.remove(box.id)
        try:
            await box.run("true")
        except BoxGone:
            return
        raise AssertionError("a command ran in a box that is gone")

    @check
    async def test_output_is_kept_byte_for_byte(self, bench: Bench) -> None:
        """Output is not text: every byte value comes through, in order."""
        box = await bench.start()
        code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300 + b'no newline')"
        result = await box.run(Command(["python3", "-c", code]))
        assert result.stdout == bytes(range(256)) * 300 + b"no newline"

    @check
    async def test_words_are_not_read_by_a_shell(self, bench: Bench) -> None:
        """A list of words reaches the program as it is."""
        box = await bench.start()
        words = ["a b", "$HOME", "*", "", "'\"", "ä"]
        code = "import sys; print(sys.argv[1:])"
        assert await box.text(Command(["python3", "-c", code, *words])) == str(words)

    @check
    async def test_standard_input_and_cwd_reach_the_command(self, bench: Bench) -> None:
        """A command gets the input it was given, where it was asked to run."""
        box = await bench.start()
        assert await box.text(Command("pwd; cat", cwd="/tmp", stdin="in ä")) == "/tmp\nin ä"  # noqa: S108

    @check
    async def test_a_command_past_its_time_is_ended(self, bench: Bench) -> None:
        """A timeout ends the command, and the box goes on."""
        box = await bench.start()
        result = await box.run(Command("sleep 600", timeout=0.2))
        assert result.exit_code != 0
        assert await box.text("echo on") == "on"

    # Files

    @check
    async def test_files_are_written_and_read_exactly(self, bench: Bench) -> None:
        """Any bytes, any name; and what programs write can be read."""
        box = await bench.start()
        content = bytes(range(256)) * 1000
        await box.inside.write_file("/workspace/dir ä/data.bin", content)
        assert await box.inside.read_file("/workspace/dir ä/data.bin") == content
        await box.text("echo made > /workspace/made")
        assert await box.inside.read_file("/workspace/made") == b"made\n"

    @check
    async def test_a_missing_file_is_not_found(self, bench: Bench) -> None:
        """A file that is not there is told apart from a broken box."""
        box = await bench.start()
        try:
            await box.inside.read_file("/workspace/none")
        except NotFound:
            return
        raise AssertionError("a file was read that does not exist")

    @check
    async def test_boxes_of_one_image_do_not_see_each_others_writes(self, bench: Bench) -> None:
        """The image is shared and read-only; what a box writes over it is its own."""
        one, two = await asyncio.gather(bench.start(), bench.start())
        await one.text("for d in /var/tmp /tmp $HOME /workspace; do echo one > $d/mark || exit 1; done")
        seen = "for d in /var/tmp /tmp $HOME /workspace; do test ! -e $d/mark || echo $d; done"
        assert await two.text(seen) == ""
        assert await (await bench.start()).text(seen) == "", "a box wrote into the image"

    # Mounts

    @check
    async def test_a_mounted_directory_is_shared_both_ways(self, bench: Bench) -> None:
        """The box sees the host's files and the host the box's."""
        bench.needs(Feature.MOUNTS)
        with TemporaryDirectory() as directory:
            Path(directory, "from-host").write_text("host")
            mount = Mount(source=Path(directory), target="/mnt/shared/deep")
            box = await bench.start(mounts=(mount,))
            assert await box.text("cat /mnt/shared/deep/from-host") == "host"
            await box.text("echo box > /mnt/shared/deep/from-box")
            made = Path(directory, "from-box")
            assert made.read_text() == "box\n"
            assert made.stat().st_uid == Path(directory).stat().st_uid, "the box's file has a stranger for an owner"

    @check
    async def test_a_read_only_mount_cannot_be_written(self, bench: Bench) -> None:
        """Neither its files nor its directory."""
        bench.needs(Feature.MOUNTS)
        with TemporaryDirectory() as directory:
            Path(directory, "file").write_text("kept")
            Path(directory, "file").chmod(0o666)
            box = await bench.start(mounts=(Mount(source=Path(directory), target="/mnt/fixed", read_only=True),))
            result = await box.run("cd /mnt/fixed; cat file; echo x > file; touch new; rm -f file")
            assert result.stdout == b"kept"
            assert os.listdir(directory) == ["file"]
            assert Path(directory, "file").read_text() == "kept"

    @check
    async def test_a_single_file_can_be_mounted(self, bench: Bench) -> None:
        """A file lands where it is asked for, also over one that the image has."""
        bench.needs(Feature.MOUNTS)
        with TemporaryDirectory() as directory:
            source = Path(directory, "settings")
            source.write_text("mounted")
            mounts = tuple(
                Mount(source=source, target=target, read_only=True) for target in ("/etc/passwd.extra", "/etc/hosts")
            )
            box = await bench.start(mounts=mounts)
            assert await box.text("cat /etc/passwd.extra /etc/hosts") == "mountedmounted"

    @check
    async def test_a_mount_that_does_not_exist_fails_the_start(self, bench: Bench) -> None:
        """And leaves nothing."""
        bench.needs(Feature.MOUNTS)
        missing = Mount(source=Path("/no/such/directory"), target="/mnt/x")
        await self._fails_to_start(bench, bench.spec(mounts=(missing,)))

    # Network

    @check
    async def test_there_is_no_network(self, bench: Bench) -> None:
        """The only interface is the box's own loopback, and the host's loopback is not behind it."""
        box = await bench.start()
        assert await box.python("import socket; print([n for _, n in socket.if_nameindex()])") == "['lo']"
        async with _echo_port() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
            refused = await box.run(Command(["python3", "-c", code]))
        assert refused.exit_code == 1
        assert b"ConnectionRefusedError" in refused.stderr

    @check
    async def test_a_hole_leads_to_the_hosts_service(self, bench: Bench) -> None:
        """The service answers at 127.0.0.1 inside, and again after it was restarted."""
        bench.needs(Feature.HOLES)
        box = await bench.start(holes=(Hole(name="service", port=18080),))
        path = self.hole_directory(bench.backend, box.record) / "service.sock"
        fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:18080/', timeout=5).read().decode())"
        for answer in ("first", "second"):
            async with _http_socket(path, answer):
                assert await box.python(fetch) == answer

    @check
    async def test_a_hole_to_a_stopped_service_is_closed(self, bench: Bench) -> None:
        """While nothing listens on the host, programs in the box are told so at once."""
        bench.needs(Feature.HOLES)
        box = await bench.start(holes=(Hole(name="service", port=18080),))
        code = "import urllib.request as r; r.urlopen('http://127.0.0.1:18080/', timeout=5)"
        result = await box.run(Command(["python3", "-c", code]))
        assert result.exit_code == 1
        assert b"timed out" not in result.stderr

    # Limits

    @check
    async def test_a_memory_bomb_is_killed(self, bench: Bench) -> None:
        """The box survives it, or its end is told apart as `out_of_memory`."""
        bench.needs(Feature.MEMORY_LIMIT)
        box = await bench.start(limits=Limits(memory=96 * MIB))
        await self._bomb(bench, box)

    @check
    async def test_limits_of_a_running_box_can_change(self, bench: Bench) -> None:
        """What fitted before does not fit afterwards."""
        bench.needs(Feature.MEMORY_LIMIT)
        box = await bench.start(limits=Limits(memory=1024 * MIB))
        assert await box.python("print(len(bytearray(256 * 2**20)))") == str(256 * MIB)
        await bench.backend.limit(box.record, Limits(memory=96 * MIB))
        await self._bomb(bench, box)

    @check
    async def test_the_number_of_processes_is_limited(self, bench: Bench) -> None:
        """A box that forks without end meets its limit, and answers again afterwards."""
        box = await bench.start(limits=Limits(pids=48))
        code = (
            "import os, signal, sys\n"
            "made = []\n"
            "for _ in range(400):\n"
            "    try: pid = os.fork()\n"
            "    except OSError: break\n"
            "    if pid == 0: signal.pause()\n"
            "    made.append(pid)\n"
            "for pid in made: os.kill(pid, 9)\n"
            "for pid in made: os.waitpid(pid, 0)\n"
            "print(len(made))\n"
        )
        assert 0 < int(await box.python(code)) < 48
        assert await box.text("echo on") == "on"

    @check
    async def test_cpu_time_is_limited(self, bench: Bench) -> None:
        """A fifth of a CPU is about a fifth of the time that passes."""
        bench.needs(Feature.CPU_LIMIT)
        box = await bench.start(limits=Limits(cpu=0.2))
        code = (
            "import time\n"
            "begin, used = time.monotonic(), time.process_time()\n"
            "while time.monotonic() < begin + 1: pass\n"
            "print((time.process_time() - used) / (time.monotonic() - begin))\n"
        )
        assert float(await box.python(code)) < 0.5

    @check
    async def test_open_files_are_limited(self, bench: Bench) -> None:
        """A process cannot open more files than it may."""
        box = await bench.start(limits=Limits(files=128))
        code = "import os\ncount = 0\ntry:\n    while True: os.dup(0); count += 1\nexcept OSError: print(count)\n"
        assert int(await box.python(code)) < 128

    @check
    async def test_disk_use_is_seen_and_its_cause_can_be_ended(self, bench: Bench) -> None:
        """Bytes in the box's layer and workspace count; `end_commands` stops whoever writes them, files stay served."""
        box = await bench.start()
        before = await bench.backend.disk_used(box.record)
        await box.text("for f in /workspace/a /var/tmp/b; do head -c 6M /dev/urandom > $f && sync $f; done")
        assert before < 12 * MIB <= await bench.backend.disk_used(box.record)
        await box.inside.start("while :; do date +%N > /workspace/beat; done")

        async def beat() -> bytes:
            return (await box.run("cat /workspace/beat")).stdout

        await eventually(beat)
        await bench.backend.end_commands(box.record)
        assert await box.inside.read_file("/workspace/beat") == await box.inside.read_file("/workspace/beat")
        assert len(await box.inside.read_file("/workspace/a")) == 6 * MIB
        processes = await box.text("ls /proc | grep -c '^[0-9]'")
        assert int(processes) <= 5, "a process outlived end_commands"

    # Pausing

    @check
    async def test_a_paused_box_really_stands_still(self, bench: Bench) -> None:
        """No process advances; after `resume` it goes on where it was. Both can be said twice."""
        bench.needs(Feature.PAUSE)
        bench.needs(Feature.MOUNTS)
        with TemporaryDirectory() as directory:
            box = await bench.start(mounts=(Mount(source=Path(directory), target="/mnt/out"),))
            await box.inside.start("cd /mnt/out; i=0; while :; do i=$((i+1)); echo $i > n; mv n count; done")
            counter = Path(directory, "count")

            async def count() -> int:
                try:
                    return int(counter.read_text() or 0)
                except FileNotFoundError:
                    return 0

            await eventually(count)
            await bench.backend.pause(box.record)
            await bench.backend.pause(box.record)
            assert (await bench.backend.status(box.record)).health is BoxHealth.PAUSED
            seen = await count()
            await asyncio.sleep(0.3)  # Nothing to wait for: nothing must happen.
            assert await count() == seen
            await bench.backend.resume(box.record)
            await bench.backend.resume(box.record)
            assert (await bench.backend.status(box.record)).health is BoxHealth.RUNNING

            async def advanced() -> bool:
                return await count() > seen

            await eventually(advanced)
            await bench.backend.remove(box.id)

    @check
    async def test_a_paused_box_can_be_removed(self, bench: Bench) -> None:
        """Frozen processes die too."""
        bench.needs(Feature.PAUSE)
        box = await bench.start()
        await bench.backend.pause(box.record)
        await asyncio.wait_for(bench.backend.remove(box.id), SOON)
        assert (await bench.backend.status(box.record)).health is BoxHealth.GONE

    # Snapshots

    @check
    async def test_a_snapshot_keeps_what_was_written_and_what_was_deleted(self, bench: Bench) -> None:
        """A box started from it has the new files, not the deleted ones, and owns all that its user owned."""
        bench.needs(Feature.SNAPSHOT)
        await self._image_has(bench, "/etc/hosts")
        box = await bench.start()
        await box.text(
            "mkdir -p $HOME/d /workspace/w && echo new > $HOME/d/new && echo work > /workspace/w/file && "
            "ln -s /etc/hosts $HOME/link && chmod 600 $HOME/d/new && echo gone > $HOME/gone && rm $HOME/gone && "
            "rm -rf $HOME/.[a-z]*"
        )
        listing = await box.text("cd $HOME && ls -A")
        snapshot_id = bench.new_snapshot_id()
        await bench.backend.snapshot(box.record, snapshot_id)
        assert snapshot_id in await bench.backend.snapshots()
        await box.text("echo later > $HOME/later; echo changed > $HOME/d/new")
        copy = await bench.start(snapshot=snapshot_id)
        assert await copy.text("cd $HOME && ls -A") == listing
        assert await copy.text("cat $HOME/d/new /workspace/w/file; readlink $HOME/link") == "new\nwork\n/etc/hosts"
        shown = await copy.text("stat -c '%U %a' $HOME/d/new; find $HOME /workspace ! -user $(id -u)")
        assert shown == f"{bench.image.user.name} 600"
        await copy.text("echo more >> $HOME/d/new && rm /workspace/w/file")
        assert await box.text("cat /workspace/w/file") == "work", "the copy changed the box it came from"

    @check
    async def test_a_box_goes_on_after_its_snapshot(self, bench: Bench) -> None:
        """It is frozen only while it is copied, and stays paused if it was."""
        bench.needs(Feature.SNAPSHOT)
        box = await bench.start()
        await bench.backend.snapshot(box.record, bench.new_snapshot_id())
        assert await box.text("echo on") == "on"
        if Feature.PAUSE in bench.backend.features:
            await bench.backend.pause(box.record)
            await bench.backend.snapshot(box.record, bench.new_snapshot_id())
            assert (await bench.backend.status(box.record)).health is BoxHealth.PAUSED

    @check
    async def test_a_snapshot_outlives_its_box(self, bench: Bench) -> None:
        """And several boxes can come of it."""
        bench.needs(Feature.SNAPSHOT)
        box = await bench.start()
        await box.text("echo kept > /workspace/kept")
        snapshot_id = bench.new_snapshot_id()
        await bench.backend.snapshot(box.record, snapshot_id)
        await bench.backend.remove(box.id)
        for copy in await asyncio.gather(bench.start(snapshot=snapshot_id), bench.start(snapshot=snapshot_id)):
            assert await copy.text("cat /workspace/kept") == "kept"

    @check
    async def test_a_deleted_snapshot_is_gone(self, bench: Bench) -> None:
        """Deleting twice is fine; starting from it is not, and leaves nothing."""
        bench.needs(Feature.SNAPSHOT)
        box = await bench.start()
        snapshot_id = bench.new_snapshot_id()
        await bench.backend.snapshot(box.record, snapshot_id)
        for _ in range(2):
            await bench.backend.delete_snapshot(snapshot_id)
        assert snapshot_id not in await bench.backend.snapshots()
        before = await bench.own_leftovers()
        try:
            await bench.start(snapshot=snapshot_id)
        except SnapshotNotFound:
            assert await bench.own_leftovers() == before
            return
        raise AssertionError("a box started from a snapshot that does not exist")

    @check
    async def test_a_box_that_is_gone_gives_no_snapshot(self, bench: Bench) -> None:
        """`BoxGone` is raised, and no snapshot exists."""
        bench.needs(Feature.SNAPSHOT)
        box = await bench.start()
        await bench.backend.remove(box.id)
        snapshot_id = bench.new_snapshot_id()
        try:
            await bench.backend.snapshot(box.record, snapshot_id)
        except BoxGone:
            assert snapshot_id not in await bench.backend.snapshots()
            return
        raise AssertionError("a box that is gone was kept")

    @check
    async def test_a_cancelled_snapshot_does_not_exist(self, bench: Bench) -> None:
        """All or nothing, also when nobody waits for it any more; the box goes on."""
        bench.needs(Feature.SNAPSHOT)
        box = await bench.start()
        await box.text("for i in $(seq 300); do head -c 64k /dev/urandom > /workspace/$i; done")
        for delay in (0.0, 0.005, 0.05):
            snapshot_id = bench.new_snapshot_id()
            task = asyncio.create_task(bench.backend.snapshot(box.record, snapshot_id))
            await asyncio.sleep(delay)
            finished = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert finished or task.cancelled()
            assert finished or snapshot_id not in await bench.backend.snapshots()
        assert await box.text("echo on") == "on"

    # Ending

    @check
    async def test_wait_returns_when_the_box_ends(self, bench: Bench) -> None:
        """And not before; the status then says why."""
        box = await bench.start()
        waiting = asyncio.create_task(bench.backend.wait(box.record))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await bench.backend.remove(box.id)
        status: BoxStatus = await asyncio.wait_for(waiting, SOON)
        assert status.health is BoxHealth.GONE
        assert status.reason is not None
        assert (await asyncio.wait_for(bench.backend.wait(box.record), SOON)).health is BoxHealth.GONE

    @check
    async def test_a_cancelled_wait_leaves_the_box_alone(self, bench: Bench) -> None:
        """Waiting has no side effects."""
        box = await bench.start()
        task = asyncio.create_task(bench.backend.wait(box.record))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert await box.text("echo on") == "on"

    @check
    async def test_remove_can_be_repeated(self, bench: Bench) -> None:
        """Also for a box that never was."""
        box = await bench.start()
        for _ in range(2):
            await bench.backend.remove(box.id)
            assert box.id not in await bench.backend.leftovers()
        await bench.backend.remove(bench.new_id())

    @check
    async def test_what_is_asked_of_a_box_that_is_gone_is_answered(self, bench: Bench) -> None:
        """`status` and `disk_used` say what there is to say; what cannot be done raises `BoxGone`."""
        box = await bench.start()
        await bench.backend.remove(box.id)
        assert (await bench.backend.status(box.record)).health is BoxHealth.GONE
        assert await bench.backend.disk_used(box.record) == 0
        bench.backend.address(box.record)
        attempts = {
            "limit": bench.backend.limit(box.record, Limits(memory=512 * MIB)),
            "end_commands": bench.backend.end_commands(box.record),
        }
        if Feature.PAUSE in bench.backend.features:
            attempts |= {"pause": bench.backend.pause(box.record), "resume": bench.backend.resume(box.record)}
        outcomes = await asyncio.gather(*attempts.values(), return_exceptions=True)
        wrong = [name for name, outcome in zip(attempts, outcomes, strict=True) if not isinstance(outcome, BoxGone)]
        assert wrong == [], "these did not say that the box is gone"

    @check
    async def test_an_id_can_be_used_again(self, bench: Bench) -> None:
        """Nothing of an earlier box shows in a later one of the same id."""
        box = await bench.start()
        await box.text("echo old > /workspace/old; echo old > /var/tmp/old")
        await bench.backend.remove(box.id)
        again = await bench.start(id=box.id)
        assert await again.text("ls /workspace/old /var/tmp/old 2>/dev/null || echo none") == "none"

    @check
    async def test_a_box_that_ended_by_itself_is_still_listed_until_removed(self, bench: Bench) -> None:
        """A dead box is a leftover, so that it can be found and removed."""
        box = await bench.start()
        try:
            await box.inside.start("kill -TERM 1")
        except BoxGone:
            pass  # It may end before it has answered.
        status = await asyncio.wait_for(bench.backend.wait(box.record), SOON)
        assert status.health is BoxHealth.GONE
        assert box.id in await bench.backend.leftovers()

    # Finding boxes again

    @check
    async def test_a_new_backend_object_adopts_a_running_box(self, bench: Bench) -> None:
        """Everything that works with the first object works with one made from scratch on the same data."""
        bench.needs(Feature.SURVIVE)
        box = await bench.start()
        await box.text("echo mine > /workspace/mine")
        other = bench.another_backend()
        assert box.id in await other.leftovers()
        assert (await other.status(box.record)).health is BoxHealth.RUNNING
        async with Inside(other.address(box.record)) as inside:
            assert (await inside.run("cat /workspace/mine")).stdout == b"mine\n"
        if Feature.PAUSE in other.features:
            await other.pause(box.record)
            assert (await bench.backend.status(box.record)).health is BoxHealth.PAUSED
            await other.resume(box.record)
        waiting = asyncio.create_task(bench.backend.wait(box.record))
        await asyncio.sleep(0)
        await other.remove(box.id)
        assert (await asyncio.wait_for(waiting, SOON)).health is BoxHealth.GONE
        assert box.id not in await bench.backend.leftovers()

    @check
    async def test_closing_a_backend_object_leaves_its_boxes(self, bench: Bench) -> None:
        """Boxes go on when the server ends."""
        bench.needs(Feature.SURVIVE)
        first = bench.make_backend()
        spec = bench.spec()
        record = await first.start(spec)
        await first.close()
        box = bench.hold(spec.id, record)
        assert await box.text("echo on") == "on"

    # Failing to start

    @check
    async def test_an_image_that_does_not_exist_fails_the_start(self, bench: Bench) -> None:
        """With `BoxStartError`, and nothing is left."""
        image = bench.image.model_copy(update={"root": Path("/no/such/image"), "binds": ()})
        await self._fails_to_start(bench, bench.spec(image=image))

    @check
    async def test_an_image_without_python_says_what_it_needs(self, bench: Bench) -> None:
        """The error names python3."""
        with TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            for name in ("etc", "tmp", "usr", "home/agent"):
                Path(directory, name).mkdir(parents=True)
            image = bench.image.model_copy(update={"root": Path(directory), "binds": ()})
            error = await self._fails_to_start(bench, bench.spec(image=image))
        assert "python3" in str(error)

    @check
    async def test_an_id_in_use_is_refused(self, bench: Bench) -> None:
        """And the box that has it is not touched."""
        box = await bench.start()
        await self._fails_to_start(bench, bench.spec(id=box.id))
        assert await box.text("echo on") == "on"

    @check
    async def test_a_cancelled_start_leaves_nothing(self, bench: Bench) -> None:
        """At whatever moment it is cancelled."""
        for delay in (0.0, 0.001, 0.005, 0.02, 0.04, 0.06, 0.08, 0.1):
            spec = bench.spec()
            task = asyncio.create_task(bench.backend.start(spec))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
                await bench.backend.remove(spec.id)
            assert await bench.own_leftovers() == [], f"cancelled after {delay} seconds"

    @check
    async def test_many_boxes_start_and_end_at_once(self, bench: Bench) -> None:
        """Calls for different boxes do not disturb each other."""
        boxes = await asyncio.gather(*(bench.start() for _ in range(6)))
        names = await asyncio.gather(*(box.text("echo $PADDOCK_SANDBOX_ID") for box in boxes))
        assert names == [box.id for box in boxes]
        await asyncio.gather(*(bench.backend.remove(box.id) for box in boxes))
        assert await bench.own_leftovers() == []

    # The machine

    @check
    async def test_the_machine_can_be_examined(self, bench: Bench) -> None:
        """Every finding that is not in order says how to mend it; what boxes need is there, since they run."""
        findings = await bench.backend.examine()
        assert findings
        for finding in findings:
            assert finding.ok or not finding.required, finding
            assert finding.ok or finding.fix, finding

    async def _fails_to_start(self, bench: Bench, spec: BoxSpec) -> BoxError:
        before = await bench.own_leftovers()
        try:
            record = await bench.backend.start(spec)
        except BoxStartError as error:
            assert await bench.own_leftovers() == before, "a failed start left something"
            return error
        bench.hold(spec.id, record)
        raise AssertionError("the box started")

    async def _image_has(self, bench: Bench, path: str) -> None:
        box = await bench.start()
        assert await box.text(f"test -e {path} && echo there") == "there"

    async def _bomb(self, bench: Bench, box: Box) -> None:
        try:
            result = await box.run(Command(["python3", "-c", "bytearray(512 * 2**20)"]))
            assert result.exit_code != 0, "more memory was taken than allowed"
        except BoxGone:
            pass
        status = await bench.backend.status(box.record)
        assert status.out_of_memory_kills >= 1
        if status.health is BoxHealth.GONE:
            assert status.reason == "out_of_memory"
        else:
            assert await box.text("echo on") == "on"


@asynccontextmanager
async def _echo_port() -> AsyncIterator[int]:
    """A TCP service on the host's loopback."""

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def _http_socket(path: Path, answer: str) -> AsyncIterator[None]:
    """An HTTP service on a Unix socket, restarted as services are: the old socket's file is replaced."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = answer.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
    path.chmod(0o666)
    server = await asyncio.start_unix_server(respond, sock=listener)
    async with server:
        yield
