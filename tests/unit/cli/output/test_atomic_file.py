"""Files are written atomically."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.output.atomic_file import open_atomic_file
from paddock.cli.output.errors import CliError


def write_half(path: Path, problem: type[BaseException]) -> None:
    with open_atomic_file(path) as file:
        file.write(b"half")
        raise problem


def test_file_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open_atomic_file(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_failed_write_keeps_the_old_file_and_removes_the_partial_file(
    tmp_path: Path, problem: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(problem):
        write_half(path, problem)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_directory_is_a_one_line_error(tmp_path: Path) -> None:
    with (
        pytest.raises(CliError, match="cannot be written: No such file or directory"),
        open_atomic_file(tmp_path / "a" / "b"),
    ):
        pass
