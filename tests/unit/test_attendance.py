"""Several who look after sandboxes, each told of all that concerns them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.errors import InvalidInput, Unavailable
from paddock.fleet.attendance import Attendance
from paddock.fleet.requests import CreateSandbox
from paddock.model.sandbox import Hole, Sandbox, SandboxState
from paddock.sandbox.local.backend import LocalBackend, LocalSettings

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
SANDBOX = Sandbox(
    id="sb-1", tenant="t", backend="local", image="host", state=SandboxState.RUNNING, created_at=NOW, changed_at=NOW,
    token="x",
)  # fmt: skip


class Noting:
    """Notes what it is told, and fails at what it is to fail at."""

    def __init__(self, name: str, port: int, fails: str | None = None) -> None:
        self.holes = (Hole(name=name, port=port),)
        self.told: list[str] = []
        self._name, self._fails = name, fails

    def _note(self, what: str) -> None:
        self.told.append(what)
        if what == self._fails:
            raise Unavailable(f"{self._name} cannot")

    def check(self, request: CreateSandbox) -> None:
        self._note("check")

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        self._note("prepare")
        return {"BY": self._name, self._name.upper(): "yes"}

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        self._note(f"started {sandbox.id}")

    async def renewed(self, sandbox: Sandbox) -> None:
        self._note("renewed")

    async def ended(self, sandbox_id: str) -> None:
        self._note(f"ended {sandbox_id}")

    async def attended(self) -> Collection[str]:
        self._note("attended")
        return [f"of {self._name}", "of both"]


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(LocalSettings(data=tmp_path))


async def test_all_are_told_and_all_give(backend: LocalBackend) -> None:
    one, other = Noting("one", 1001), Noting("other", 1002)
    attendance = Attendance([one, other], backend)
    attendance.check(CreateSandbox())
    assert [hole.port for hole in attendance.holes] == [1001, 1002]
    assert await attendance.prepare(SANDBOX) == {"BY": "other", "ONE": "yes", "OTHER": "yes"}
    await attendance.started(SANDBOX, {"id": "sb-1"})
    await attendance.renewed(SANDBOX)
    await attendance.ended("sb-1")
    assert await attendance.attended() == {"of one", "of other", "of both"}
    assert one.told == other.told == ["check", "prepare", "started sb-1", "renewed", "ended sb-1", "attended"]


@pytest.mark.parametrize("what", ["started sb-1", "renewed", "ended sb-1"])
async def test_what_fails_with_one_is_told_to_the_others_and_then_to_the_caller(
    backend: LocalBackend, what: str
) -> None:
    failing, failing_too, fine = Noting("one", 1001, what), Noting("two", 1002, what), Noting("fine", 1003)
    attendance = Attendance([failing, failing_too, fine], backend)
    telling = {
        "started sb-1": lambda: attendance.started(SANDBOX, {"id": "sb-1"}),
        "renewed": lambda: attendance.renewed(SANDBOX),
        "ended sb-1": lambda: attendance.ended("sb-1"),
    }
    with pytest.raises(Unavailable, match="one cannot"):
        await telling[what]()
    assert failing_too.told == fine.told == [what]


async def test_nobody_is_attended_without_attendants(backend: LocalBackend) -> None:
    attendance = Attendance([], backend)
    attendance.check(CreateSandbox())
    assert (attendance.holes, await attendance.prepare(SANDBOX), await attendance.attended()) == ((), {}, set())


class Refusing(Noting):
    def check(self, request: CreateSandbox) -> None:
        raise InvalidInput("not like this")


def test_what_one_refuses_is_refused(backend: LocalBackend) -> None:
    with pytest.raises(InvalidInput, match="not like this"):
        Attendance([Noting("one", 1001), Refusing("two", 1002)], backend).check(CreateSandbox())
