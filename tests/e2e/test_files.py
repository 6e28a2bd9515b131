"""Files copied into and out of sandboxes keep content, mode, links and times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cli_driver import PaddockCliServer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "program").write_bytes(b"#!/bin/sh\necho runs\n")
    (tree / "program").chmod(0o750)
    (tree / "deep" / "random").write_bytes(os.urandom(3_000_000))
    (tree / "deep" / "ünïcode 文").write_text("name")
    (tree / "deep" / "er" / "link").symlink_to("../random")
    (tree / "empty").touch(0o600)
    return tree


def assert_same_tree(left: Path, right: Path) -> None:
    names = sorted(path.relative_to(left) for path in left.rglob("*"))
    assert names == sorted(path.relative_to(right) for path in right.rglob("*"))
    for name in names:
        one, other = left / name, right / name
        assert one.lstat().st_mode == other.lstat().st_mode, name
        if one.is_symlink():
            assert os.readlink(one) == os.readlink(other)
        elif one.is_file():
            assert one.read_bytes() == other.read_bytes()
            assert int(one.stat().st_mtime) == int(other.stat().st_mtime)


def test_copied_directory_returns_unchanged(
    server: PaddockCliServer, own_sandbox: str, tree: Path, tmp_path: Path
) -> None:
    result = server.json_output("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace/there")
    assert result["bytes"] == sum(
        path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert server.output("sandbox", "exec", own_sandbox, "--", "/workspace/there/program") == "runs"
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/there", str(tmp_path / "back"))
    assert_same_tree(tree, tmp_path / "back")


def test_copy_goes_inside_existing_directory(
    server: PaddockCliServer, own_sandbox: str, tree: Path, tmp_path: Path
) -> None:
    server.output("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace")
    assert server.run("sandbox", "exec", own_sandbox, "--", "test", "-x", "/workspace/tree/program").returncode == 0
    (tmp_path / "out").mkdir()
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/tree", str(tmp_path / "out"))
    assert_same_tree(tree, tmp_path / "out" / "tree")
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/tree/.", str(tmp_path / "out"))
    assert (tmp_path / "out" / "program").exists()


def test_single_files_are_copied(server: PaddockCliServer, own_sandbox: str, tree: Path, tmp_path: Path) -> None:
    server.output("sandbox", "cp", str(tree / "program"), f"{own_sandbox}:/workspace/renamed")
    server.output("sandbox", "cp", str(tree / "program"), f"{own_sandbox}:/workspace/")
    server.output("sandbox", "exec", own_sandbox, "--", "cmp", "/workspace/renamed", "/workspace/program")
    server.output("sandbox", "exec", own_sandbox, "--", "ln", "-s", "renamed", "/workspace/link")
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/renamed", str(tmp_path))
    server.output("sandbox", "cp", f"{own_sandbox}:/workspace/link", str(tmp_path / "followed"))
    assert (tmp_path / "renamed").read_bytes() == (tree / "program").read_bytes()
    assert (tmp_path / "renamed").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "followed").read_bytes() == (tree / "program").read_bytes()


def test_file_with_control_character_is_renamed_with_notice(
    server: PaddockCliServer, own_sandbox: str, tmp_path: Path
) -> None:
    server.output("sandbox", "exec", own_sandbox, "--", "touch", "/workspace/a\u202eb")
    result = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/a\u202eb", str(tmp_path))
    assert result.returncode == 0
    assert b"'a\\u202eb' is saved as 'a%E2%80%AEb'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a%E2%80%AEb"]


def test_link_out_of_target_is_refused_or_skipped(server: PaddockCliServer, own_sandbox: str, tmp_path: Path) -> None:
    server.output(
        "sandbox", "exec", own_sandbox, "-c", "mkdir /workspace/d; echo x > /workspace/d/a; ln -s /etc /workspace/d/out"
    )
    refused = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/d", str(tmp_path / "d"))
    assert refused.returncode == 1
    assert b"outside the target directory" in refused.stderr
    assert list(tmp_path.iterdir()) == [], "a refused copy left partial files"
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own").write_text("mine")
    refused = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/d/.", str(tmp_path / "there"))
    assert f"files unpacked before the error are in {tmp_path}/there".encode() in refused.stderr
    assert (tmp_path / "there" / "own").read_text() == "mine"
    assert not (tmp_path / "there" / "out").is_symlink()
    server.output("sandbox", "cp", "--skip-unsafe", f"{own_sandbox}:/workspace/d", str(tmp_path / "e"))
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == ["a"]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("nowhere", "{sandbox}:/workspace", "nowhere: no such file or directory"),
        ("{sandbox}:/nowhere", ".", "/nowhere: no such file or directory in the sandbox"),
        ("{sandbox}:/etc/passwd", "/no/such/dir/file", "/no/such/dir: no such directory"),
        ("a", "b", "must be SANDBOX:/PATH"),
        ("{sandbox}:relative", ".", "write an absolute path"),
        ("/etc/passwd", "{sandbox}:/etc/passwd/x", "/etc/passwd"),
    ],
)
def test_invalid_copies_print_an_error(
    server: PaddockCliServer, sandbox: str, source: str, target: str, message: str
) -> None:
    result = server.run("sandbox", "cp", source.format(sandbox=sandbox), target.format(sandbox=sandbox))
    assert result.returncode in (1, 2)
    assert message in result.stderr.decode()
    assert b"Traceback" not in result.stderr


def test_files_are_copied_between_sandboxes(
    server: PaddockCliServer, own_sandbox: str, tree: Path, tmp_path: Path
) -> None:
    other = server.output("sandbox", "create", "-q")
    server.output("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace/tree")
    result = server.json_output("sandbox", "cp", f"{own_sandbox}:/workspace/tree", f"{other}:/workspace/")
    assert result["destinationPath"] == "/workspace/tree" and result["type"] == "directory"
    server.output("sandbox", "cp", f"{other}:/workspace/tree", str(tmp_path / "back"))
    assert_same_tree(tree, tmp_path / "back")
    failed = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/none", f"{other}:/workspace/")
    assert failed.returncode == 1 and b"there is no" in failed.stderr
    server.output("sandbox", "rm", other)
