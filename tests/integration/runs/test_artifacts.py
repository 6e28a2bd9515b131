"""Deliverables copied to an address of fsspec's, and what happens where it does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from paddock.errors import ConfigError
from paddock.model.runs import EndedBy, RunResult, RunState
from paddock.runs.results.artifact_publisher import ArtifactPublisher
from paddock.runs.results.run_folder import RunFolder

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs", "run-1")
    made.create()
    (made.deliverables / "out").mkdir()
    (made.deliverables / "out" / "a b#?*.txt").write_text("aa")
    (made.deliverables / "report.md").write_text("# Report")
    made.write_result(RunResult(state=RunState.SUCCEEDED, ended_by=EndedBy.EXIT, reason="done"))
    return made


async def test_without_an_address_the_folder_is_all(folder: RunFolder) -> None:
    artifacts = ArtifactPublisher(None)
    artifacts.check_address()
    assert await artifacts.publish(folder) is None
    await artifacts.remove("run-1")


@pytest.mark.parametrize("scheme", ["file://", ""])
async def test_to_a_directory(folder: RunFolder, tmp_path: Path, scheme: str) -> None:
    artifacts = ArtifactPublisher(f"{scheme}{tmp_path}/share/")
    artifacts.check_address()
    published = await artifacts.publish(folder)
    assert published is not None and published.problem is None and published.files == 3
    copied = tmp_path / "share" / "run-1"
    assert (copied / "deliverables" / "report.md").read_text() == "# Report"
    assert (copied / "deliverables" / "out" / "a b#?*.txt").read_text() == "aa"
    assert (copied / "result.json").read_bytes() == folder.result.read_bytes()


async def test_copying_again_replaces_what_was_there(folder: RunFolder) -> None:
    artifacts = ArtifactPublisher("memory://again")
    await artifacts.publish(folder)
    (folder.deliverables / "report.md").write_text("newer")
    (folder.deliverables / "out" / "a b#?*.txt").unlink()
    published = await artifacts.publish(folder)
    assert published is not None and (published.files, published.problem) == (2, None)
    memory = fsspec.filesystem("memory")
    assert memory.find("/again") == ["/again/run-1/deliverables/report.md", "/again/run-1/result.json"]
    assert memory.cat_file("/again/run-1/deliverables/report.md") == b"newer"
    await artifacts.remove("run-1")
    await artifacts.remove("run-1")
    assert memory.find("/again") == []


@pytest.mark.parametrize("address", ["nosuch://bucket", "s3-but-not-installed://x"])
def test_an_address_that_nothing_understands_is_told_before_any_run(address: str) -> None:
    with pytest.raises(ConfigError, match=r"runs\.artifacts"):
        ArtifactPublisher(address).check_address()


class Shaky(MemoryFileSystem):  # type: ignore[misc]
    """A store that fails a few times."""

    protocol = "shaky"
    failures = 0

    def put_file(self, *arguments: Any, **more: Any) -> None:
        if Shaky.failures > 0:
            Shaky.failures -= 1
            raise OSError("slow down")
        super().put_file(*arguments, **more)


@pytest.fixture
def shaky() -> type[Shaky]:
    fsspec.register_implementation("shaky", Shaky, clobber=True)
    return Shaky


async def test_what_fails_is_tried_again(folder: RunFolder, shaky: type[Shaky]) -> None:
    shaky.failures = 2
    published = await ArtifactPublisher("shaky://store", first_pause=0.001).publish(folder)
    assert published is not None and published.problem is None and published.files == 3


async def test_what_keeps_failing_is_told_and_the_folder_stays(folder: RunFolder, shaky: type[Shaky]) -> None:
    shaky.failures = 1000
    published = await ArtifactPublisher("shaky://me:s3cret@store", first_pause=0.001).publish(folder)
    assert published is not None and published.problem is not None
    assert "slow down" in published.problem and "the run's folder" in published.problem
    assert "s3cret" not in str(published)
    assert (folder.deliverables / "report.md").read_text() == "# Report"


async def test_a_full_or_forbidden_place_is_told(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    published = await ArtifactPublisher(f"file://{tmp_path}/file", first_pause=0.001).publish(folder)
    assert published is not None and published.problem is not None and published.files == 0
