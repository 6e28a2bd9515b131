# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Standing still, and keeping what was written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.errors import BoxGone, SnapshotNotFound
from paddock.model.sandbox import BoxHealth, Mount
from paddock.sandbox.base import Feature
from paddock.sandbox.conformance.bench import SOON, Bench, Checks, check, eventually


class Keeping(Checks):
    """Standing still, and keeping what was written."""

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
        await self.image_has(bench, "/etc/hosts")
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
