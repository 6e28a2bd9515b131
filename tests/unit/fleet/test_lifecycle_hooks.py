"""Lifecycle hooks: all are called, and the first error is raised."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.errors import InvalidInput, Unavailable
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.lifecycle_hooks import LifecycleHooks
from paddock.model.sandbox import Sandbox, SandboxState, UplinkService
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
SANDBOX = Sandbox(
    id="sb-1", tenant="t", backend="local", image="host", state=SandboxState.RUNNING, created_at=NOW, changed_at=NOW,
    token="x",
)  # fmt: skip


class RecordingHook:
    """Records its calls, and fails at one of them if configured to."""

    def __init__(self, name: str, port: int, fails: str | None = None) -> None:
        self.uplink_services = (UplinkService(name=name, port=port),)
        self.calls: list[str] = []
        self._name, self._fails = name, fails

    def _record_call(self, call_name: str) -> None:
        self.calls.append(call_name)
        if call_name == self._fails:
            raise Unavailable(f"{self._name} cannot")

    def check_request(self, request: SandboxRequest) -> None:
        self._record_call("check")

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        self._record_call("prepare")
        return {"BY": self._name, self._name.upper(): "yes"}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        self._record_call(f"started {sandbox.id}")

    async def on_renewed(self, sandbox: Sandbox) -> None:
        self._record_call("renewed")

    async def on_ended(self, sandbox_id: str) -> None:
        self._record_call(f"ended {sandbox_id}")

    async def tracked_sandboxes(self) -> Collection[str]:
        self._record_call("tracked")
        return [f"of {self._name}", "of both"]


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(LocalBackendSettings(data=tmp_path))


async def test_all_hooks_are_called_and_provide_variables(backend: LocalBackend) -> None:
    one, other = RecordingHook("one", 1001), RecordingHook("other", 1002)
    hooks = LifecycleHooks([one, other], backend)
    hooks.check_request(SandboxRequest())
    assert [service.port for service in hooks.uplink_services] == [1001, 1002]
    assert await hooks.environment(SANDBOX) == {"BY": "other", "ONE": "yes", "OTHER": "yes"}
    await hooks.on_started(SANDBOX, {"id": "sb-1"})
    await hooks.on_renewed(SANDBOX)
    await hooks.on_ended("sb-1")
    assert await hooks.tracked_sandboxes() == {"of one", "of other", "of both"}
    assert one.calls == other.calls == ["check", "prepare", "started sb-1", "renewed", "ended sb-1", "tracked"]


@pytest.mark.parametrize("call_name", ["started sb-1", "renewed", "ended sb-1"])
async def test_error_of_one_hook_is_raised_after_all_were_called(backend: LocalBackend, call_name: str) -> None:
    failing, failing_too, fine = (
        RecordingHook("one", 1001, call_name),
        RecordingHook("two", 1002, call_name),
        RecordingHook("fine", 1003),
    )
    hooks = LifecycleHooks([failing, failing_too, fine], backend)
    calls = {
        "started sb-1": lambda: hooks.on_started(SANDBOX, {"id": "sb-1"}),
        "renewed": lambda: hooks.on_renewed(SANDBOX),
        "ended sb-1": lambda: hooks.on_ended("sb-1"),
    }
    with pytest.raises(Unavailable, match="one cannot"):
        await calls[call_name]()
    assert failing_too.calls == fine.calls == [call_name]


async def test_without_hooks_nothing_is_tracked(backend: LocalBackend) -> None:
    hooks = LifecycleHooks([], backend)
    hooks.check_request(SandboxRequest())
    assert (
        hooks.uplink_services,
        await hooks.environment(SANDBOX),
        await hooks.tracked_sandboxes(),
    ) == ((), {}, set())


class RejectingHook(RecordingHook):
    def check_request(self, request: SandboxRequest) -> None:
        raise InvalidInput("not like this")


def test_request_rejected_by_one_hook_is_rejected(backend: LocalBackend) -> None:
    with pytest.raises(InvalidInput, match="not like this"):
        LifecycleHooks([RecordingHook("one", 1001), RejectingHook("two", 1002)], backend).check_request(
            SandboxRequest()
        )
