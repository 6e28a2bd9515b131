# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""What a box is given of the host, and what it is not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.model.sandbox import Hole, Limits, Mount
from paddock.sandbox.base import Feature
from paddock.sandbox.client import Command
from paddock.sandbox.conformance.bench import MIB, Bench, Checks, check, echo_port, eventually, http_socket


class Fencing(Checks):
    """What a box is given of the host, and what it is not."""

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
        await self.fails_to_start(bench, bench.spec(mounts=(missing,)))

    # Network

    @check
    async def test_there_is_no_network(self, bench: Bench) -> None:
        """The only interface is the box's own loopback, and the host's loopback is not behind it."""
        box = await bench.start()
        assert await box.python("import socket; print([n for _, n in socket.if_nameindex()])") == "['lo']"
        async with echo_port() as port:
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
        path = bench.backend.holes(box.record) / "service.sock"
        fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:18080/', timeout=5).read().decode())"
        for answer in ("first", "second"):
            async with http_socket(path, answer):
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
        await self.bomb(bench, box)

    @check
    async def test_limits_of_a_running_box_can_change(self, bench: Bench) -> None:
        """What fitted before does not fit afterwards."""
        bench.needs(Feature.MEMORY_LIMIT)
        box = await bench.start(limits=Limits(memory=1024 * MIB))
        assert await box.python("print(len(bytearray(256 * 2**20)))") == str(256 * MIB)
        await bench.backend.limit(box.record, Limits(memory=96 * MIB))
        await self.bomb(bench, box)

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
