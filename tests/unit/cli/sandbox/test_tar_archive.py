"""Hostile archive entries never reach the host."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.cli.output.errors import CliError
from paddock.cli.sandbox.tar_archive import TarUnpacker, UnsafeArchive, pack_tar

Fill = Callable[[tarfile.TarFile], None]


def entry(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Fill:
    def fill(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, link, mode
        info.size = len(content) if kind == tarfile.REGTYPE else 0
        info.mtime = 1_000_000
        archive.addfile(info, io.BytesIO(content))

    return fill


def symlink(name: str, target: str) -> Fill:
    return entry(name, kind=tarfile.SYMTYPE, link=target)


def archive_of(*fills: Fill, mode: str = "w") -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for fill in fills:
            fill(archive)
    stream.seek(0)
    return stream


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("untouched")
    target = tmp_path / "target"
    target.mkdir()
    return target


HOSTILE = {
    "absolute": [entry("/tmp/paddock-evil")],
    "dots": [entry("../outside", b"owned")],
    "inner dots": [entry("a/../../outside", b"owned")],
    "link out": [symlink("l", "/etc")],
    "relative link out": [symlink("l", "../outside")],
    "link up from below": [symlink("a/l", "../../outside")],
    "link to itself then up": [symlink("a/b/up", "../.."), symlink("l", "a/b/up/../outside")],
    "empty link": [symlink("l", "")],
    "hard link out": [entry("h", kind=tarfile.LNKTYPE, link="../outside")],
    "hard link absolute": [entry("h", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "hard link to what was there": [entry("h", kind=tarfile.LNKTYPE, link="mine")],
    "character device": [entry("d", kind=tarfile.CHRTYPE)],
    "block device": [entry("d", kind=tarfile.BLKTYPE)],
    "pipe": [entry("p", kind=tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries_are_refused(name: str, target: Path) -> None:
    (target / "mine").write_text("mine")
    with pytest.raises(UnsafeArchive):
        TarUnpacker(target).unpack(archive_of(*HOSTILE[name]))
    assert (target.parent / "outside").read_text() == "untouched"
    assert sorted(path.name for path in target.parent.iterdir()) == ["outside", "target"]
    assert not Path("/tmp/paddock-evil").exists()


def test_nothing_is_written_through_a_link_of_the_archive(target: Path) -> None:
    """The link is harmless by itself; the file behind it must not follow it."""
    (target / "inner").mkdir()
    with pytest.raises(CliError):
        TarUnpacker(target).unpack(archive_of(symlink("way", "inner"), entry("way/file", b"owned")))
    assert list((target / "inner").iterdir()) == []


def test_nothing_is_written_through_an_existing_link(target: Path) -> None:
    (target / "way").symlink_to(target.parent)
    with pytest.raises(UnsafeArchive, match="exists and is not a directory"):
        TarUnpacker(target).unpack(archive_of(entry("way/outside", b"owned")))
    assert (target.parent / "outside").read_text() == "untouched"


def test_file_replaces_a_symbolic_link(target: Path) -> None:
    (target / "file").symlink_to("../outside")
    TarUnpacker(target).unpack(archive_of(entry("file", b"new")))
    assert (target / "file").read_text() == "new" and not (target / "file").is_symlink()
    assert (target.parent / "outside").read_text() == "untouched"


def test_file_replaces_a_hard_link(target: Path) -> None:
    os.link(target.parent / "outside", target / "file")
    TarUnpacker(target).unpack(archive_of(entry("file", b"new")))
    assert (target.parent / "outside").read_text() == "untouched"


def test_set_user_id_bits_are_removed_and_other_modes_kept(target: Path) -> None:
    TarUnpacker(target).unpack(archive_of(entry("s", mode=0o6755), entry("w", mode=0o666)))
    assert stat.S_IMODE((target / "s").stat().st_mode) == 0o755
    assert stat.S_IMODE((target / "w").stat().st_mode) == 0o666


def test_control_characters_in_names_are_escaped_and_reported(target: Path) -> None:
    notices: list[str] = []
    fills = [
        entry("a\x1b[2Jb", b"1"),
        entry("d\u202e/txt.exe", b"2"),
        entry("plain %1B", b"3"),
        symlink("l", "a\x1b[2Jb"),
    ]
    TarUnpacker(target, skipped=notices.append).unpack(archive_of(*fills))
    assert sorted(os.listdir(target)) == ["a%1B[2Jb", "d%E2%80%AE", "l", "plain %1B"]
    assert (target / "l").read_bytes() == b"1"
    assert notices == [r"'a\x1b[2Jb' is saved as 'a%1B[2Jb'", r"'d\u202e/txt.exe' is saved as 'd%E2%80%AE/txt.exe'"]


@pytest.mark.parametrize("names", [("x\x07", "x%07"), ("x%07", "x\x07")])
def test_two_names_cannot_collide_after_escaping(names: tuple[str, str], target: Path) -> None:
    with pytest.raises(UnsafeArchive, match="would take the place of another entry"):
        TarUnpacker(target).unpack(archive_of(*(entry(name, name.encode()) for name in names)))
    assert (target / "x%07").read_bytes() == names[0].encode()


def test_unsafe_entries_can_be_left_out(target: Path) -> None:
    skipped: list[str] = []
    hostile = [fill for name, fills in HOSTILE.items() if not name.startswith("hard") for fill in fills]
    unpacker = TarUnpacker(target, skip_unsafe=True, skipped=skipped.append)
    unpacker.unpack(archive_of(entry("good"), *hostile))
    assert (target / "good").read_bytes() == b"x"
    assert len(skipped) >= len(hostile) - 1
    assert (target.parent / "outside").read_text() == "untouched"


def test_a_header_as_large_as_memory_is_refused(target: Path) -> None:
    def bomb(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo("././@PaxHeader")
        info.type, info.size = tarfile.XHDTYPE, 2**40
        archive.fileobj.write(info.tobuf(tarfile.GNU_FORMAT))

    with pytest.raises(UnsafeArchive, match="header"):
        TarUnpacker(target).unpack(archive_of(bomb))


@pytest.mark.parametrize("content", [b"not a tar at all" * 100, b"\x1f\x8bnot gzip" + bytes(600)])
def test_invalid_archives_are_reported(content: bytes, target: Path) -> None:
    with pytest.raises(CliError, match="broken"):
        TarUnpacker(target).unpack(io.BytesIO(content))


def test_a_truncated_archive_is_reported(target: Path) -> None:
    whole = archive_of(entry("a", bytes(100_000))).getvalue()
    with pytest.raises(CliError, match="broken"):
        TarUnpacker(target).unpack(io.BytesIO(whole[:50_000]))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_harmless_links_and_directories_arrive(target: Path, mode: str) -> None:
    fills = [
        entry("./d/", kind=tarfile.DIRTYPE, mode=0o500),
        entry("./d/file", b"content", mode=0o640),
        symlink("./d/up", "../other"),
        symlink("./dangling", "d/nowhere"),
        entry("./other", kind=tarfile.LNKTYPE, link="./d/file"),
    ]
    unpacker = TarUnpacker(target)
    unpacker.unpack(archive_of(*fills, mode=mode))
    assert (target / "d" / "up").read_text() == "content"
    assert os.readlink(target / "dangling") == "d/nowhere"
    assert stat.S_IMODE((target / "d").stat().st_mode) == 0o500
    assert (target / "d" / "file").stat().st_mtime == 1_000_000
    assert (target / "other").stat().st_ino == (target / "d" / "file").stat().st_ino
    assert unpacker.total == 7


def test_packed_files_are_unpacked_unchanged(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / "a").mkdir(parents=True)
    (source / "a" / "b").write_bytes(bytes(range(256)) * 1000)
    (source / "a" / "l").symlink_to("b")
    os.mkfifo(source / "pipe")
    stream = io.BytesIO()
    assert pack_tar(source, ".", stream) == 256_000
    stream.seek(0)
    TarUnpacker(target).unpack(stream)
    assert (target / "a" / "l").read_bytes() == bytes(range(256)) * 1000
    assert not (target / "pipe").exists()
