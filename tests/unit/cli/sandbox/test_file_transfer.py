"""Targets of copies, as with cp and docker cp."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.output.errors import CliError
from paddock.cli.sandbox.file_transfer import UploadPlan, plan_download, plan_upload


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("dir")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "target", "kind", "name", "directory"),
    [
        ("file", "/w", "directory", "file", "/w"),
        ("file", "/w/", None, "file", "/w/"),
        ("file", "/w/new", None, "new", "/w"),
        ("file", "/w/old", "file", "old", "/w"),
        ("dir", "/w", "directory", ".", "/w/dir"),
        ("dir/", "/w", "directory", ".", "/w/dir"),
        ("dir", "/w/new", None, ".", "/w/new"),
        ("dir/.", "/w", "directory", ".", "/w"),
        ("link", "/w", "directory", ".", "/w/link"),
        (".", "/w", "directory", ".", "/w"),
    ],
)
def test_upload_plans(here: Path, source: str, target: str, kind: str | None, name: str, directory: str) -> None:
    plan = plan_upload(source, target, kind)
    assert plan == UploadPlan((here / source).resolve(), name, directory)


@pytest.mark.parametrize(
    ("source", "kind", "target", "expected"),
    [
        ("/a/f", "file", "dir", "dir/f"),
        ("/a/f", "file", ".", "f"),
        ("/a/f", "file", "new", "new"),
        ("/a/f", "file", "file", "file"),
        ("/a/d", "directory", "dir", "dir/d"),
        ("/a/d", "directory", "new", "new"),
        ("/a/d/.", "directory", "dir", "dir"),
        ("/", "directory", "dir", "dir"),
    ],
)
def test_download_plans(here: Path, source: str, kind: str, target: str, expected: str) -> None:
    assert plan_download(source, kind, target) == Path(expected)


@pytest.mark.parametrize(
    ("source", "kind", "target"),
    [
        ("/a/f", "file", "missing/new"),
        ("/a/f", "file", "missing/"),
        ("/a/d", "directory", "file"),
        ("/a/dir", "file", "."),
    ],
)
def test_impossible_downloads_are_errors(here: Path, source: str, kind: str, target: str) -> None:
    with pytest.raises(CliError):
        plan_download(source, kind, target)


def test_a_directory_cannot_replace_a_file(here: Path) -> None:
    with pytest.raises(CliError):
        plan_upload("dir", "/w/f", "file")
