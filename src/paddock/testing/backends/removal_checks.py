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
    async def test_wait_returns_when_the_sandbox_ends(self, harness: BackendHarness) -> None:
        """`wait` returns only after the end; the status has the reason."""
        sandbox = await harness.start()
        waiting = asyncio.create_task(harness.backend.wait(sandbox.record))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await harness.backend.remove(sandbox.id)
        status: SandboxStatus = await asyncio.wait_for(waiting, SHORT_TIMEOUT)
        assert status.health is SandboxHealth.GONE
        assert status.reason is not None
        assert (
            await asyncio.wait_for(harness.backend.wait(sandbox.record), SHORT_TIMEOUT)
        ).health is SandboxHealth.GONE

    @conformance_check
    async def test_cancelled_wait_has_no_side_effects(self, harness: BackendHarness) -> None:
        """A cancelled `wait` has no side effects."""
        sandbox = await harness.start()
        task = asyncio.create_task(harness.backend.wait(sandbox.record))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert await sandbox.text("echo on") == "on"

    @conformance_check
    async def test_remove_can_be_repeated(self, harness: BackendHarness) -> None:
        """Removal is idempotent, also for unknown sandboxes."""
        sandbox = await harness.start()
        for _ in range(2):
            await harness.backend.remove(sandbox.id)
            assert sandbox.id not in await harness.backend.leftovers()
        await harness.backend.remove(harness.new_id())

    @conformance_check
    async def test_calls_for_removed_sandbox_are_answered(self, harness: BackendHarness) -> None:
        """`status` and `disk_used` answer; other calls raise `SandboxGone`."""
        sandbox = await harness.start()
        await harness.backend.remove(sandbox.id)
        assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.GONE
        assert await harness.backend.disk_used(sandbox.record) == 0
        harness.backend.daemon_address(sandbox.record)
        attempts = {
            "limit": harness.backend.limit(sandbox.record, SandboxLimits(memory=512 * MIB)),
            "end_commands": harness.backend.end_commands(sandbox.record),
        }
        if BackendFeature.PAUSE in harness.backend.features:
            attempts |= {
                "pause": harness.backend.pause(sandbox.record),
                "resume": harness.backend.resume(sandbox.record),
            }
        outcomes = await asyncio.gather(*attempts.values(), return_exceptions=True)
        unexpected = [
            name for name, outcome in zip(attempts, outcomes, strict=True) if not isinstance(outcome, SandboxGone)
        ]
        assert unexpected == [], "these did not say that the sandbox is gone"

    @conformance_check
    async def test_sandbox_id_can_be_reused(self, harness: BackendHarness) -> None:
        """A new sandbox shows nothing of an earlier one with the same id."""
        sandbox = await harness.start()
        await sandbox.text("echo old > /workspace/old; echo old > /var/tmp/old")
        await harness.backend.remove(sandbox.id)
        again = await harness.start(id=sandbox.id)
        assert await again.text("ls /workspace/old /var/tmp/old 2>/dev/null || echo none") == "none"

    @conformance_check
    async def test_ended_sandbox_is_listed_until_removed(self, harness: BackendHarness) -> None:
        """A dead sandbox is listed as a leftover until it is removed."""
        sandbox = await harness.start()
        try:
            await sandbox.inside.start("kill -TERM 1")
        except SandboxGone:
            pass  # The sandbox may end before it answers.
        status = await asyncio.wait_for(harness.backend.wait(sandbox.record), SHORT_TIMEOUT)
        assert status.health is SandboxHealth.GONE
        assert sandbox.id in await harness.backend.leftovers()

    # Finding sandboxes again

    @conformance_check
    async def test_new_backend_object_adopts_running_sandbox(self, harness: BackendHarness) -> None:
        """A new backend on the same data can do everything the first one can."""
        harness.needs(BackendFeature.SURVIVE)
        sandbox = await harness.start()
        await sandbox.text("echo mine > /workspace/mine")
        other = harness.another_backend()
        assert sandbox.id in await other.leftovers()
        assert (await other.status(sandbox.record)).health is SandboxHealth.RUNNING
        async with DaemonClient(other.daemon_address(sandbox.record)) as inside:
            assert (await inside.run("cat /workspace/mine")).stdout == b"mine\n"
        if BackendFeature.PAUSE in other.features:
            await other.pause(sandbox.record)
            assert (await harness.backend.status(sandbox.record)).health is SandboxHealth.PAUSED
            await other.resume(sandbox.record)
        waiting = asyncio.create_task(harness.backend.wait(sandbox.record))
        await asyncio.sleep(0)
        await other.remove(sandbox.id)
        assert (await asyncio.wait_for(waiting, SHORT_TIMEOUT)).health is SandboxHealth.GONE
        assert sandbox.id not in await harness.backend.leftovers()

    @conformance_check
    async def test_closed_backend_leaves_sandboxes_running(self, harness: BackendHarness) -> None:
        """Sandboxes outlive the server process."""
        harness.needs(BackendFeature.SURVIVE)
        first = harness.make_backend()
        spec = harness.spec()
        record = await first.start(spec)
        await first.close()
        sandbox = harness.hold(spec.id, record)
        assert await sandbox.text("echo on") == "on"

    # Failing to start

    @conformance_check
    async def test_missing_image_fails_the_start(self, harness: BackendHarness) -> None:
        """A failed start raises `SandboxStartError` and leaves nothing."""
        image = harness.image.model_copy(update={"root": Path("/no/such/image"), "binds": ()})
        await self.fails_to_start(harness, harness.spec(image=image))

    @conformance_check
    async def test_error_for_image_without_python_names_python3(self, harness: BackendHarness) -> None:
        """The error names python3."""
        with TemporaryDirectory() as directory:
            Path(directory).chmod(0o755)
            for name in ("etc", "tmp", "usr", "home/agent"):
                Path(directory, name).mkdir(parents=True)
            image = harness.image.model_copy(update={"root": Path(directory), "binds": ()})
            error = await self.fails_to_start(harness, harness.spec(image=image))
        assert "python3" in str(error)

    @conformance_check
    async def test_id_in_use_is_refused(self, harness: BackendHarness) -> None:
        """A start with an id in use fails and does not affect the running sandbox."""
        sandbox = await harness.start()
        await self.fails_to_start(harness, harness.spec(id=sandbox.id))
        assert await sandbox.text("echo on") == "on"

    @conformance_check
    async def test_cancelled_start_leaves_nothing(self, harness: BackendHarness) -> None:
        """A start cancelled at any moment leaves nothing."""
        for delay in (0.0, 0.001, 0.005, 0.02, 0.04, 0.06, 0.08, 0.1):
            spec = harness.spec()
            task = asyncio.create_task(harness.backend.start(spec))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
                await harness.backend.remove(spec.id)
            assert await harness.own_leftovers() == [], f"cancelled after {delay} seconds"

    @conformance_check
    async def test_many_sandboxes_start_and_end_concurrently(self, harness: BackendHarness) -> None:
        """Concurrent calls for different sandboxes are independent."""
        sandboxes = await asyncio.gather(*(harness.start() for _ in range(6)))
        names = await asyncio.gather(*(sandbox.text("echo $PADDOCK_SANDBOX_ID") for sandbox in sandboxes))
        assert names == [sandbox.id for sandbox in sandboxes]
        await asyncio.gather(*(harness.backend.remove(sandbox.id) for sandbox in sandboxes))
        assert await harness.own_leftovers() == []

    # The machine

    @conformance_check
    async def test_host_checks_pass_or_have_a_fix(self, harness: BackendHarness) -> None:
        """Every failed finding has a fix; everything that sandboxes need is present."""
        findings = await harness.backend.examine()
        assert findings
        for finding in findings:
            assert finding.ok or not finding.required, finding
            assert finding.ok or finding.fix, finding
