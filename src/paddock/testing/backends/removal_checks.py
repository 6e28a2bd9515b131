# ruff: noqa: ASYNC240 -- checks look at files and wait for conditions; nothing else shares their loop
"""Checks of removal, adoption after a restart, and failed starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.errors import SandboxGone
from paddock.model.sandbox import SandboxHealth, SandboxLimits, SandboxStatus
from paddock.sandbox.base import BackendFeature
from paddock.sandbox.daemon.client import DaemonClient
from paddock.testing.backends.harness import (
    MIB,
    SHORT_TIMEOUT,
    BackendHarness,
    ConformanceChecks,
    conformance_check,
)


class RemovalChecks(ConformanceChecks):
    """Checks of removal, adoption after a restart, and failed starts."""

    # Ending

    @conformance_check
    async def test_wait_returns_when_the_sandbox_ends(self, bench: BackendHarness) -> None:
        """`wait` returns only after the end; the status has the reason."""
        sandbox = await bench.start()
        waiting = asyncio.create_task(bench.backend.wait(sandbox.record))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await bench.backend.remove(sandbox.id)
        status: SandboxStatus = await asyncio.wait_for(waiting, SHORT_TIMEOUT)
        assert status.health is SandboxHealth.GONE
        assert status.reason is not None
        assert (await asyncio.wait_for(bench.backend.wait(sandbox.record), SHORT_TIMEOUT)).health is SandboxHealth.GONE

    @conformance_check
    async def test_a_cancelled_wait_leaves_the_sandbox_alone(self, bench: BackendHarness) -> None:
        """A cancelled `wait` has no side effects."""
        sandbox = await bench.start()
        task = asyncio.create_task(bench.backend.wait(sandbox.record))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert await sandbox.text("echo on") == "on"

    @conformance_check
    async def test_remove_can_be_repeated(self, bench: BackendHarness) -> None:
        """Removal is idempotent, also for unknown sandboxes."""
        sandbox = await bench.start()
        for _ in range(2):
            await bench.backend.remove(sandbox.id)
            assert sandbox.id not in await bench.backend.leftovers()
        await bench.backend.remove(bench.new_id())

    @conformance_check
    async def test_what_is_asked_of_a_sandbox_that_is_gone_is_answered(self, bench: BackendHarness) -> None:
        """`status` and `disk_used` answer; other calls raise `SandboxGone`."""
        sandbox = await bench.start()
        await bench.backend.remove(sandbox.id)
        assert (await bench.backend.status(sandbox.record)).health is SandboxHealth.GONE
        assert await bench.backend.disk_used(sandbox.record) == 0
        bench.backend.daemon_address(sandbox.record)
        attempts = {
            "limit": bench.backend.limit(sandbox.record, SandboxLimits(memory=512 * MIB)),
            "end_commands": bench.backend.end_commands(sandbox.record),
        }
        if BackendFeature.PAUSE in bench.backend.features:
            attempts |= {"pause": bench.backend.pause(sandbox.record), "resume": bench.backend.resume(sandbox.record)}
        outcomes = await asyncio.gather(*attempts.values(), return_exceptions=True)
        unexpected = [
            name for name, outcome in zip(attempts, outcomes, strict=True) if not isinstance(outcome, SandboxGone)
        ]
        assert unexpected == [], "these did not say that the sandbox is gone"

    @conformance_check
    async def test_an_id_can_be_used_again(self, bench: BackendHarness) -> None:
        """A new sandbox shows nothing of an earlier one with the same id."""
        sandbox = await bench.start()
        await sandbox.text("echo old > /workspace/old; echo old > /var/tmp/old")
        await bench.backend.remove(sandbox.id)
        again = await bench.start(id=sandbox.id)
        assert await again.text("ls /workspace/old /var/tmp/old 2>/dev/null || echo none") == "none"

    @conformance_check
    async def test_a_sandbox_that_ended_by_itself_is_still_listed_until_removed(self, bench: BackendHarness) -> None:
        """A dead sandbox is listed as a leftover until it is removed."""
        sandbox = await bench.start()
        try:
            await sandbox.inside.start("kill -TERM 1")
        except SandboxGone:
            pass  # The sandbox may end before it answers.
        status = await asyncio.wait_for(bench.backend.wait(sandbox.record), SHORT_TIMEOUT)
        assert status.health is SandboxHealth.GONE
        assert sandbox.id in await bench.backend.leftovers()

    # Finding sandboxes again

    @conformance_check
    async def test_a_new_backend_object_adopts_a_running_sandbox(self, bench: BackendHarness) -> None:
        """A new backend on the same data can do everything the first one can."""
        bench.needs(BackendFeature.SURVIVE)
        sandbox = await bench.start()
        await sandbox.text("echo mine > /workspace/mine")
        other = bench.another_backend()
        assert sandbox.id in await other.leftovers()
        assert (await other.status(sandbox.record)).health is SandboxHealth.RUNNING
        async with DaemonClient(other.daemon_address(sandbox.record)) as inside:
            assert (await inside.run("cat /workspace/mine")).stdout == b"mine\n"
        if BackendFeature.PAUSE in other.features:
            await other.pause(sandbox.record)
            assert (await bench.backend.status(sandbox.record)).health is SandboxHealth.PAUSED
            await other.resume(sandbox.record)
        waiting = asyncio.create_task(bench.backend.wait(sandbox.record))
        await asyncio.sleep(0)
        await other.remove(sandbox.id)
        assert (await asyncio.wait_for(waiting, SHORT_TIMEOUT)).health is SandboxHealth.GONE
        assert sandbox.id not in await bench.backend.leftovers()

    @conformance_check
    async def test_closing_a_backend_object_leaves_its_sandboxes(self, bench: BackendHarness) -> None:
        """Sandboxes outlive the server process."""
        bench.needs(BackendFeature.SURVIVE)
        first = bench.create_sandbox_backend()
        spec = bench.spec()
        record = await first.start(spec)
        await first.close()
        sandbox = bench.hold(spec.id, record)
        assert await sandbox.text("echo on") == "on"

    # Failing to start

    @conformance_check
    async def test_an_image_that_does_not_exist_fails_the_start(self, bench: BackendHarness) -> None:
        """A failed start raises `SandboxStartError` and leaves nothing."""
        image = bench.image.model_copy(update={"root": Path("/no/such/image"), "binds": ()})
        await self.fails_to_start(bench, bench.spec(image=image))

    @conformance_check
    async def test_an_image_without_python_says_what_it_needs(self, bench: BackendHarness) -> None:
        """The error names python3."""
        with TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            for name in ("etc", "tmp", "usr", "home/agent"):
                Path(directory, name).mkdir(parents=True)
            image = bench.image.model_copy(update={"root": Path(directory), "binds": ()})
            error = await self.fails_to_start(bench, bench.spec(image=image))
        assert "python3" in str(error)

    @conformance_check
    async def test_an_id_in_use_is_refused(self, bench: BackendHarness) -> None:
        """A start with an id in use fails and does not affect the running sandbox."""
        sandbox = await bench.start()
        await self.fails_to_start(bench, bench.spec(id=sandbox.id))
        assert await sandbox.text("echo on") == "on"

    @conformance_check
    async def test_a_cancelled_start_leaves_nothing(self, bench: BackendHarness) -> None:
        """A start cancelled at any moment leaves nothing."""
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

    @conformance_check
    async def test_many_sandboxes_start_and_end_at_once(self, bench: BackendHarness) -> None:
        """Concurrent calls for different sandboxes are independent."""
        sandboxes = await asyncio.gather(*(bench.start() for _ in range(6)))
        names = await asyncio.gather(*(sandbox.text("echo $PADDOCK_SANDBOX_ID") for sandbox in sandboxes))
        assert names == [sandbox.id for sandbox in sandboxes]
        await asyncio.gather(*(bench.backend.remove(sandbox.id) for sandbox in sandboxes))
        assert await bench.own_leftovers() == []

    # The machine

    @conformance_check
    async def test_the_machine_can_be_examined(self, bench: BackendHarness) -> None:
        """Every failed finding has a fix; everything that sandboxes need is present."""
        findings = await bench.backend.examine()
        assert findings
        for finding in findings:
            assert finding.ok or not finding.required, finding
            assert finding.ok or finding.fix, finding
