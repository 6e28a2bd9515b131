"""Files appear under their name whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.failure import CliError
from paddock.cli.whole import whole_file


def write_half(path: Path, problem: type[BaseException]) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise problem


def test_a_file_appears_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_nothing_stays_when_writing_fails_and_what_was_there_is_kept(
    tmp_path: Path, problem: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(problem):
        write_half(path, problem)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    with (
        pytest.raises(CliError, match="cannot be written: No such file or directory"),
        whole_file(tmp_path / "a" / "b"),
    ):
        pass
