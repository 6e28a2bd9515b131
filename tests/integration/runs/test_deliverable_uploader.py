"""Upload of deliverables to fsspec addresses, with retries and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from paddock.errors import ConfigError
from paddock.model.runs import EndedBy, RunResult, RunState
from paddock.runs.results.deliverable_uploader import DeliverableUploader
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


async def test_without_an_address_nothing_is_uploaded(folder: RunFolder) -> None:
    uploader = DeliverableUploader(None)
    uploader.check_address()
    assert await uploader.upload(folder) is None
    await uploader.remove("run-1")


@pytest.mark.parametrize("scheme", ["file://", ""])
async def test_upload_to_a_directory(folder: RunFolder, tmp_path: Path, scheme: str) -> None:
    uploader = DeliverableUploader(f"{scheme}{tmp_path}/share/")
    uploader.check_address()
    uploaded = await uploader.upload(folder)
    assert uploaded is not None and uploaded.problem is None and uploaded.files == 3
    copied = tmp_path / "share" / "run-1"
    assert (copied / "deliverables" / "report.md").read_text() == "# Report"
    assert (copied / "deliverables" / "out" / "a b#?*.txt").read_text() == "aa"
    assert (copied / "result.json").read_bytes() == folder.result.read_bytes()


async def test_second_upload_replaces_the_first(folder: RunFolder) -> None:
    uploader = DeliverableUploader("memory://again")
    await uploader.upload(folder)
    (folder.deliverables / "report.md").write_text("newer")
    (folder.deliverables / "out" / "a b#?*.txt").unlink()
    uploaded = await uploader.upload(folder)
    assert uploaded is not None and (uploaded.files, uploaded.problem) == (2, None)
    memory = fsspec.filesystem("memory")
    assert memory.find("/again") == ["/again/run-1/deliverables/report.md", "/again/run-1/result.json"]
    assert memory.cat_file("/again/run-1/deliverables/report.md") == b"newer"
    await uploader.remove("run-1")
    await uploader.remove("run-1")
    assert memory.find("/again") == []


@pytest.mark.parametrize("address", ["nosuch://bucket", "s3-but-not-installed://x"])
def test_unsupported_address_is_rejected_at_start(address: str) -> None:
    with pytest.raises(ConfigError, match=r"runs\.artifacts"):
        DeliverableUploader(address).check_address()


class FailingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A store that fails a few times."""

    protocol = "shaky"
    failures = 0

    def put_file(self, *arguments: Any, **more: Any) -> None:
        if FailingFileSystem.failures > 0:
            FailingFileSystem.failures -= 1
            raise OSError("slow down")
        super().put_file(*arguments, **more)


@pytest.fixture
def failing_file_system() -> type[FailingFileSystem]:
    fsspec.register_implementation("shaky", FailingFileSystem, clobber=True)
    return FailingFileSystem


async def test_failed_upload_is_retried(folder: RunFolder, failing_file_system: type[FailingFileSystem]) -> None:
    failing_file_system.failures = 2
    uploaded = await DeliverableUploader("shaky://store", first_delay=0.001).upload(folder)
    assert uploaded is not None and uploaded.problem is None and uploaded.files == 3


async def test_permanent_failure_is_reported_and_keeps_the_folder(
    folder: RunFolder, failing_file_system: type[FailingFileSystem]
) -> None:
    failing_file_system.failures = 1000
    uploaded = await DeliverableUploader("shaky://me:s3cret@store", first_delay=0.001).upload(folder)
    assert uploaded is not None and uploaded.problem is not None
    assert "slow down" in uploaded.problem and "the run's folder" in uploaded.problem
    assert "s3cret" not in str(uploaded)
    assert (folder.deliverables / "report.md").read_text() == "# Report"


async def test_unwritable_target_is_reported(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    uploaded = await DeliverableUploader(f"file://{tmp_path}/file", first_delay=0.001).upload(folder)
    assert uploaded is not None and uploaded.problem is not None and uploaded.files == 0
