# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Checks of mounts, network and resource limits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.model.sandbox import SandboxLimits, SandboxMount, UplinkService
from paddock.sandbox.base import BackendFeature
from paddock.sandbox.daemon.client import SandboxCommand
from paddock.testing.backends.harness import (
    MIB,
    BackendHarness,
    ConformanceChecks,
    conformance_check,
    serve_http_on_socket,
    tcp_service_port,
    wait_until_true,
)


class IsolationChecks(ConformanceChecks):
    """Checks of mounts, network and resource limits."""

    # Mounts

    @conformance_check
    async def test_mounted_directory_is_shared_both_ways(self, harness: BackendHarness) -> None:
        """Host and sandbox see each other's files in a shared mount."""
        harness.needs(BackendFeature.MOUNTS)
        with TemporaryDirectory() as directory:
            Path(directory, "from-host").write_text("host")
            mount = SandboxMount(source=Path(directory), target="/mnt/shared/deep")
            sandbox = await harness.start(mounts=(mount,))
            assert await sandbox.text("cat /mnt/shared/deep/from-host") == "host"
            await sandbox.text("echo sandbox > /mnt/shared/deep/from-sandbox")
            made = Path(directory, "from-sandbox")
            assert made.read_text() == "sandbox\n"
            assert made.stat().st_uid == Path(directory).stat().st_uid, "the sandbox's file has a stranger for an owner"

    @conformance_check
    async def test_read_only_mount_cannot_be_written(self, harness: BackendHarness) -> None:
        """A read-only mount accepts neither changed nor new files."""
        harness.needs(BackendFeature.MOUNTS)
        with TemporaryDirectory() as directory:
            Path(directory, "file").write_text("kept")
            Path(directory, "file").chmod(0o666)
            sandbox = await harness.start(
                mounts=(SandboxMount(source=Path(directory), target="/mnt/fixed", read_only=True),)
            )
            result = await sandbox.run("cd /mnt/fixed; cat file; echo x > file; touch new; rm -f file")
            assert result.stdout == b"kept"
            assert os.listdir(directory) == ["file"]
            assert Path(directory, "file").read_text() == "kept"

    @conformance_check
    async def test_single_file_can_be_mounted(self, harness: BackendHarness) -> None:
        """A mounted file appears at its path, also over a file of the image."""
        harness.needs(BackendFeature.MOUNTS)
        with TemporaryDirectory() as directory:
            source = Path(directory, "settings")
            source.write_text("mounted")
            mounts = tuple(
                SandboxMount(source=source, target=target, read_only=True)
                for target in ("/etc/passwd.extra", "/etc/hosts")
            )
            sandbox = await harness.start(mounts=mounts)
            assert await sandbox.text("cat /etc/passwd.extra /etc/hosts") == "mountedmounted"

    @conformance_check
    async def test_missing_mount_source_fails_the_start(self, harness: BackendHarness) -> None:
        """A failed start leaves nothing behind."""
        harness.needs(BackendFeature.MOUNTS)
        missing = SandboxMount(source=Path("/no/such/directory"), target="/mnt/x")
        await self.fails_to_start(harness, harness.spec(mounts=(missing,)))

    # Network

    @conformance_check
    async def test_sandbox_has_no_network(self, harness: BackendHarness) -> None:
        """The only interface is the sandbox's own loopback, without access to the host's."""
        sandbox = await harness.start()
        assert await sandbox.python("import socket; print([n for _, n in socket.if_nameindex()])") == "['lo']"
        async with tcp_service_port() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
            refused = await sandbox.run(SandboxCommand(["python3", "-c", code]))
        assert refused.exit_code == 1
        assert b"ConnectionRefusedError" in refused.stderr

    @conformance_check
    async def test_uplink_service_is_reachable(self, harness: BackendHarness) -> None:
        """An uplink service answers at 127.0.0.1, also after a restart."""
        harness.needs(BackendFeature.UPLINK)
        sandbox = await harness.start(uplink_services=(UplinkService(name="service", port=18080),))
        path = harness.backend.uplink_directory(sandbox.record) / "service.sock"
        fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:18080/', timeout=5).read().decode())"
        for answer in ("first", "second"):
            async with serve_http_on_socket(path, answer):
                assert await sandbox.python(fetch) == answer

    @conformance_check
    async def test_uplink_to_stopped_service_is_refused(self, harness: BackendHarness) -> None:
        """Connections fail at once while the host's service is down."""
        harness.needs(BackendFeature.UPLINK)
        sandbox = await harness.start(uplink_services=(UplinkService(name="service", port=18080),))
        code = "import urllib.request as r; r.urlopen('http://127.0.0.1:18080/', timeout=5)"
        result = await sandbox.run(SandboxCommand(["python3", "-c", code]))
        assert result.exit_code == 1
        assert b"timed out" not in result.stderr

    # Limits

    @conformance_check
    async def test_memory_bomb_is_killed(self, harness: BackendHarness) -> None:
        """The sandbox survives, or its end has the reason `out_of_memory`."""
        harness.needs(BackendFeature.MEMORY_LIMIT)
        sandbox = await harness.start(limits=SandboxLimits(memory=96 * MIB))
        await self.bomb(harness, sandbox)

    @conformance_check
    async def test_limits_of_a_running_sandbox_can_change(self, harness: BackendHarness) -> None:
        """Changed limits apply to running sandboxes."""
        harness.needs(BackendFeature.MEMORY_LIMIT)
        sandbox = await harness.start(limits=SandboxLimits(memory=1024 * MIB))
        assert await sandbox.python("print(len(bytearray(256 * 2**20)))") == str(256 * MIB)
        await harness.backend.limit(sandbox.record, SandboxLimits(memory=96 * MIB))
        await self.bomb(harness, sandbox)

    @conformance_check
    async def test_the_number_of_processes_is_limited(self, harness: BackendHarness) -> None:
        """A fork bomb meets the process limit, and the sandbox recovers."""
        sandbox = await harness.start(limits=SandboxLimits(pids=48))
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
        assert 0 < int(await sandbox.python(code)) < 48
        assert await sandbox.text("echo on") == "on"

    @conformance_check
    async def test_cpu_time_is_limited(self, harness: BackendHarness) -> None:
        """A limit of 0.2 CPUs gives about a fifth of the elapsed time."""
        harness.needs(BackendFeature.CPU_LIMIT)
        sandbox = await harness.start(limits=SandboxLimits(cpu=0.2))
        code = (
            "import time\n"
            "begin, used = time.monotonic(), time.process_time()\n"
            "while time.monotonic() < begin + 1: pass\n"
            "print((time.process_time() - used) / (time.monotonic() - begin))\n"
        )
        assert float(await sandbox.python(code)) < 0.5

    @conformance_check
    async def test_open_files_are_limited(self, harness: BackendHarness) -> None:
        """The limit of open files applies."""
        sandbox = await harness.start(limits=SandboxLimits(files=128))
        code = "import os\ncount = 0\ntry:\n    while True: os.dup(0); count += 1\nexcept OSError: print(count)\n"
        assert int(await sandbox.python(code)) < 128

    @conformance_check
    async def test_disk_use_is_measured_and_writers_can_be_ended(self, harness: BackendHarness) -> None:
        """Layer and workspace count as disk usage; `end_commands` stops writers, files stay readable."""
        sandbox = await harness.start()
        before = await harness.backend.disk_used(sandbox.record)
        await sandbox.text("for f in /workspace/a /var/tmp/b; do head -c 6M /dev/urandom > $f && sync $f; done")
        assert before < 12 * MIB <= await harness.backend.disk_used(sandbox.record)
        await sandbox.inside.start("while :; do date +%N > /workspace/beat; done")

        async def beat() -> bytes:
            return (await sandbox.run("cat /workspace/beat")).stdout

        await wait_until_true(beat)
        await harness.backend.end_commands(sandbox.record)
        assert await sandbox.inside.read_file("/workspace/beat") == await sandbox.inside.read_file("/workspace/beat")
        assert len(await sandbox.inside.read_file("/workspace/a")) == 6 * MIB
        processes = await sandbox.text("ls /proc | grep -c '^[0-9]'")
        assert int(processes) <= 5, "a process outlived end_commands"
