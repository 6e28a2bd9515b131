"""Archives are unpacked only as long as the sandbox may write."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from paddock.inside.errors import ApiError
from paddock.inside.files.tar_archives import unpack_tar_with_python


def test_unpacking_stops_when_the_disk_limit_is_exceeded(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        member = tarfile.TarInfo("large")
        member.size = 2**23
        writer.addfile(member, io.BytesIO(bytes(member.size)))
    archive.seek(0)

    def check() -> None:
        if (tmp_path / "large").exists() and (tmp_path / "large").stat().st_size > 2**20:
            raise ApiError(507, "DISK_FULL", "nothing can be written")

    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(ApiError, match="nothing can be written"):
            unpack_tar_with_python(archive, directory, check)
    finally:
        os.close(directory)
    assert (tmp_path / "large").stat().st_size < 2**21
