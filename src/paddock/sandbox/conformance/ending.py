# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Ending, being found again, and failing to start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.errors import BoxGone
from paddock.model.sandbox import BoxHealth, BoxStatus, Limits
from paddock.sandbox.base import Feature
from paddock.sandbox.client import Inside
from paddock.sandbox.conformance.bench import MIB, SOON, Bench, Checks, check


class Ending(Checks):
    """Ending, being found again, and failing to start."""

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
        await self.fails_to_start(bench, bench.spec(image=image))

    @check
    async def test_an_image_without_python_says_what_it_needs(self, bench: Bench) -> None:
        """The error names python3."""
        with TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            for name in ("etc", "tmp", "usr", "home/agent"):
                Path(directory, name).mkdir(parents=True)
            image = bench.image.model_copy(update={"root": Path(directory), "binds": ()})
            error = await self.fails_to_start(bench, bench.spec(image=image))
        assert "python3" in str(error)

    @check
    async def test_an_id_in_use_is_refused(self, bench: Bench) -> None:
        """And the box that has it is not touched."""
        box = await bench.start()
        await self.fails_to_start(bench, bench.spec(id=box.id))
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
