"""Recording files, complete and after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.errors import InvalidInput, NotFound, Unavailable
from paddock.live.recording import padrec_file, video_export
from paddock.live.recording.padrec_file import PadrecWriter
from paddock.live.recording.recording_files import RecordingFiles
from paddock.model.recordings import Recording, RecordingState
from paddock.model.screens import ScreenFrame

JPEGS = [bytes([0xFF, 0xD8, 0xFF, number, 10]) * (number + 1) for number in range(4)]


def write_recording(path: Path) -> Path:
    writer = PadrecWriter.create(path, {"id": path.stem})
    for number, data in enumerate(JPEGS):
        writer.append_picture(
            ScreenFrame(sequence=number, width=100 + number, height=50, at=1000.0 + number, data=data)
        )
    writer.close()
    assert writer.size == path.stat().st_size
    return path


def test_every_picture_is_found_by_its_number(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.padrec")
    entries = padrec_file.read_index_entries(path)
    assert [padrec_file.read_picture(path, entry) for entry in entries] == JPEGS
    assert [(entry.at, entry.width) for entry in entries] == [(1000.0 + n, 100 + n) for n in range(4)]
    assert padrec_file.read_index_entry(path, 2) == entries[2]
    for missing in (4, 10**18):
        with pytest.raises(NotFound):
            padrec_file.read_index_entry(path, missing)


def test_complete_pictures_survive_a_crash_at_any_byte(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.padrec")
    content, entries = path.read_bytes(), padrec_file.read_index_entries(path)
    for length in range(content.index(b"\n") + 1, len(content) + 1):
        path.write_bytes(content[:length])
        complete = [entry for entry in entries if entry.offset + entry.size < length]
        assert padrec_file.repair_padrec(path) == padrec_file.read_index_entries(path) == complete
        assert path.stat().st_size == (
            complete[-1].offset + complete[-1].size + 1 if complete else content.index(b"\n") + 1
        )


@pytest.mark.parametrize("tail", [b"nonsense\n", b'{"bytes": -5}\n', b'{"bytes": 1e99}\n', b"[" * 5000, b"\0" * 5000])
def test_invalid_tail_is_truncated(tmp_path: Path, tail: bytes) -> None:
    path = write_recording(tmp_path / "a.padrec")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    assert len(padrec_file.repair_padrec(path)) == len(JPEGS)
    assert path.stat().st_size == size


def test_interrupted_recording_is_closed(tmp_path: Path) -> None:
    recording_files = RecordingFiles(tmp_path)
    recording = Recording(
        id="rec-0123456789abcdef",
        tenant="default",
        sandbox_id="sb-1",
        state=RecordingState.RECORDING,
        started_at="2026-01-01T00:00:00Z",
        fps=5,
        quality=75,
    )
    writer = recording_files.create_files(recording)
    writer.append_picture(ScreenFrame(sequence=1, width=640, height=480, at=1.0, data=JPEGS[0]))
    writer.close()
    (closed,) = recording_files.close_interrupted()
    assert (closed.state, closed.reason, closed.frames, closed.width) == (RecordingState.STOPPED, "server", 1, 640)
    assert recording_files.list_recordings("default") == [closed]
    assert recording_files.close_interrupted() == []
    recording_files.remove_files("default", recording.id)
    assert list((tmp_path / "default").iterdir()) == []


def test_export_without_ffmpeg_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_recording(tmp_path / "a.padrec")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="apt-get install ffmpeg"):
        asyncio.run(video_export.export_video(path, None, "mp4", tmp_path / "film.mp4", 10))
    asyncio.run(video_export.export_video(path, None, "mkv", tmp_path / "film.mkv", 10))
    assert all(data in (tmp_path / "film.mkv").read_bytes() for data in JPEGS)


def test_export_of_invalid_pictures_fails(tmp_path: Path) -> None:
    """Pictures of a sandbox are untrusted; only the confined ffmpeg decodes them."""
    path = write_recording(tmp_path / "a.padrec")
    with pytest.raises(Unavailable, match="ffmpeg could not export the video"):
        asyncio.run(video_export.export_video(path, None, "mp4", tmp_path / "film.mp4", 30))
    assert not (tmp_path / "film.mp4").exists()


def test_export_of_an_empty_recording_fails(tmp_path: Path) -> None:
    PadrecWriter.create(tmp_path / "a.padrec", {}).close()
    with pytest.raises(InvalidInput):
        asyncio.run(video_export.export_video(tmp_path / "a.padrec", None, "mp4", tmp_path / "film.mp4", 10))
