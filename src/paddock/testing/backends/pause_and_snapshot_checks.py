# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Checks of pausing and of snapshots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.errors import SandboxGone, SnapshotNotFound
from paddock.model.sandbox import SandboxHealth, SandboxMount
from paddock.sandbox.base import BackendFeature
from paddock.testing.backends.harness import (
    SHORT_TIMEOUT,
    BackendHarness,
    ConformanceChecks,
    conformance_check,
    wait_until_true,
)


class PauseAndSnapshotChecks(ConformanceChecks):
    """Checks of pausing and of snapshots."""

    # Pausing

    @conformance_check
    async def test_paused_sandbox_runs_no_processes(self, harness: BackendHarness) -> None:
        """Paused processes stop and continue after `resume`. Both calls are idempotent."""
        harness.needs(BackendFeature.PAUSE)
        harness.needs(BackendFeature.MOUNTS)
        with TemporaryDirectory() as directory:
            sandbox = await harness.start(mounts=(SandboxMount(source=Path(directory), target="/mnt/out"),))
            await sandbox.inside.start("cd /mnt/out; i=0; while :; do i=$((i+1)); echo $i > n; mv n count; done")
            counter = Path(directory, "count")

            async def count() -> int:
                try:
                    return int(counter.read_text() or 0)
                except FileNotFoundError:
                    return 0

            await wait_until_true(count)
            await harness.backend.pause(sandbox.record)
            await harness.backend.pause(sandbox.record)
            assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.PAUSED
            seen = await count()
            await asyncio.sleep(0.3)  # There is no condition to wait for: nothing must happen.
            assert await count() == seen
            await harness.backend.resume(sandbox.record)
            await harness.backend.resume(sandbox.record)
            assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.RUNNING

            async def advanced() -> bool:
                return await count() > seen

            await wait_until_true(advanced)
            await harness.backend.remove(sandbox.id)

    @conformance_check
    async def test_paused_sandbox_can_be_removed(self, harness: BackendHarness) -> None:
        """A paused sandbox can be removed."""
        harness.needs(BackendFeature.PAUSE)
        sandbox = await harness.start()
        await harness.backend.pause(sandbox.record)
        await asyncio.wait_for(harness.backend.remove(sandbox.id), SHORT_TIMEOUT)
        assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.GONE

    # Snapshots

    @conformance_check
    async def test_snapshot_keeps_written_and_deleted_files(self, harness: BackendHarness) -> None:
        """A sandbox from a snapshot has new files, no deleted ones, and the same ownership."""
        harness.needs(BackendFeature.SNAPSHOT)
        await self.image_has(harness, "/etc/hosts")
        sandbox = await harness.start()
        await sandbox.text(
            "mkdir -p $HOME/d /workspace/w && echo new > $HOME/d/new && echo work > /workspace/w/file && "
            "ln -s /etc/hosts $HOME/link && chmod 600 $HOME/d/new && echo gone > $HOME/gone && rm $HOME/gone && "
            "rm -rf $HOME/.[a-z]*"
        )
        listing = await sandbox.text("cd $HOME && ls -A")
        snapshot_id = harness.new_snapshot_id()
        await harness.backend.snapshot(sandbox.record, snapshot_id)
        assert snapshot_id in await harness.backend.snapshots()
        await sandbox.text("echo later > $HOME/later; echo changed > $HOME/d/new")
        copy = await harness.start(snapshot=snapshot_id)
        assert await copy.text("cd $HOME && ls -A") == listing
        assert await copy.text("cat $HOME/d/new /workspace/w/file; readlink $HOME/link") == "new\nwork\n/etc/hosts"
        shown = await copy.text("stat -c '%U %a' $HOME/d/new; find $HOME /workspace ! -user $(id -u)")
        assert shown == f"{harness.spec().program_user.name} 600"
        await copy.text("echo more >> $HOME/d/new && rm /workspace/w/file")
        assert await sandbox.text("cat /workspace/w/file") == "work", "the copy changed the sandbox it came from"

    @conformance_check
    async def test_sandbox_continues_after_its_snapshot(self, harness: BackendHarness) -> None:
        """A sandbox is frozen only during the copy, and stays paused if it was."""
        harness.needs(BackendFeature.SNAPSHOT)
        sandbox = await harness.start()
        await harness.backend.snapshot(sandbox.record, harness.new_snapshot_id())
        assert await sandbox.text("echo on") == "on"
        if BackendFeature.PAUSE in harness.backend.features:
            await harness.backend.pause(sandbox.record)
            await harness.backend.snapshot(sandbox.record, harness.new_snapshot_id())
            assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.PAUSED

    @conformance_check
    async def test_snapshot_outlives_its_sandbox(self, harness: BackendHarness) -> None:
        """Several sandboxes can start from one snapshot."""
        harness.needs(BackendFeature.SNAPSHOT)
        sandbox = await harness.start()
        await sandbox.text("echo kept > /workspace/kept")
        snapshot_id = harness.new_snapshot_id()
        await harness.backend.snapshot(sandbox.record, snapshot_id)
        await harness.backend.remove(sandbox.id)
        for copy in await asyncio.gather(harness.start(snapshot=snapshot_id), harness.start(snapshot=snapshot_id)):
            assert await copy.text("cat /workspace/kept") == "kept"

    @conformance_check
    async def test_deleted_snapshot_cannot_be_started(self, harness: BackendHarness) -> None:
        """Deletion is idempotent; starting from a deleted snapshot fails and leaves nothing."""
        harness.needs(BackendFeature.SNAPSHOT)
        sandbox = await harness.start()
        snapshot_id = harness.new_snapshot_id()
        await harness.backend.snapshot(sandbox.record, snapshot_id)
        for _ in range(2):
            await harness.backend.delete_snapshot(snapshot_id)
        assert snapshot_id not in await harness.backend.snapshots()
        before = await harness.own_leftovers()
        try:
            await harness.start(snapshot=snapshot_id)
        except SnapshotNotFound:
            assert await harness.own_leftovers() == before
            return
        raise AssertionError("a sandbox started from a snapshot that does not exist")

    @conformance_check
    async def test_snapshot_of_removed_sandbox_fails(self, harness: BackendHarness) -> None:
        """A snapshot of a removed sandbox raises `SandboxGone` and leaves nothing."""
        harness.needs(BackendFeature.SNAPSHOT)
        sandbox = await harness.start()
        await harness.backend.remove(sandbox.id)
        snapshot_id = harness.new_snapshot_id()
        try:
            await harness.backend.snapshot(sandbox.record, snapshot_id)
        except SandboxGone:
            assert snapshot_id not in await harness.backend.snapshots()
            return
        raise AssertionError("a sandbox that is gone was kept")

    @conformance_check
    async def test_cancelled_snapshot_is_absent_or_complete(self, harness: BackendHarness) -> None:
        """A cancelled snapshot is complete or absent; the sandbox continues."""
        harness.needs(BackendFeature.SNAPSHOT)
        sandbox = await harness.start()
        await sandbox.text("for i in $(seq 300); do head -c 64k /dev/urandom > /workspace/$i; done")
        for delay in (0.0, 0.005, 0.05):
            snapshot_id = harness.new_snapshot_id()
            task = asyncio.create_task(harness.backend.snapshot(sandbox.record, snapshot_id))
            await asyncio.sleep(delay)
            finished = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert finished or task.cancelled()
            assert finished or snapshot_id not in await harness.backend.snapshots()
        assert await sandbox.text("echo on") == "on"
