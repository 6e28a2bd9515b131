"""Files go in and out of a sandbox and stay what they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cli_driver import Server


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


def compare(left: Path, right: Path) -> None:
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


def test_a_directory_comes_back_as_it_went(server: Server, own_sandbox: str, tree: Path, tmp_path: Path) -> None:
    done = server.json("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace/there")
    assert done["bytes"] == sum(
        path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert server.text("sandbox", "exec", own_sandbox, "--", "/workspace/there/program") == "runs"
    server.text("sandbox", "cp", f"{own_sandbox}:/workspace/there", str(tmp_path / "back"))
    compare(tree, tmp_path / "back")


def test_an_existing_directory_gets_it_inside(server: Server, own_sandbox: str, tree: Path, tmp_path: Path) -> None:
    server.text("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace")
    assert server.run("sandbox", "exec", own_sandbox, "--", "test", "-x", "/workspace/tree/program").returncode == 0
    (tmp_path / "out").mkdir()
    server.text("sandbox", "cp", f"{own_sandbox}:/workspace/tree", str(tmp_path / "out"))
    compare(tree, tmp_path / "out" / "tree")
    server.text("sandbox", "cp", f"{own_sandbox}:/workspace/tree/.", str(tmp_path / "out"))
    assert (tmp_path / "out" / "program").exists()


def test_single_files(server: Server, own_sandbox: str, tree: Path, tmp_path: Path) -> None:
    server.text("sandbox", "cp", str(tree / "program"), f"{own_sandbox}:/workspace/renamed")
    server.text("sandbox", "cp", str(tree / "program"), f"{own_sandbox}:/workspace/")
    server.text("sandbox", "exec", own_sandbox, "--", "cmp", "/workspace/renamed", "/workspace/program")
    server.text("sandbox", "exec", own_sandbox, "--", "ln", "-s", "renamed", "/workspace/link")
    server.text("sandbox", "cp", f"{own_sandbox}:/workspace/renamed", str(tmp_path))
    server.text("sandbox", "cp", f"{own_sandbox}:/workspace/link", str(tmp_path / "followed"))
    assert (tmp_path / "renamed").read_bytes() == (tree / "program").read_bytes()
    assert (tmp_path / "renamed").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "followed").read_bytes() == (tree / "program").read_bytes()


def test_a_single_file_with_a_control_character_says_its_new_name(
    server: Server, own_sandbox: str, tmp_path: Path
) -> None:
    server.text("sandbox", "exec", own_sandbox, "--", "touch", "/workspace/a\u202eb")
    done = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/a\u202eb", str(tmp_path))
    assert done.returncode == 0
    assert b"'a\\u202eb' is saved as 'a%E2%80%AEb'" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a%E2%80%AEb"]


def test_a_link_that_leads_out_is_refused_or_left_out(server: Server, own_sandbox: str, tmp_path: Path) -> None:
    server.text(
        "sandbox", "exec", own_sandbox, "-c", "mkdir /workspace/d; echo x > /workspace/d/a; ln -s /etc /workspace/d/out"
    )
    refused = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/d", str(tmp_path / "d"))
    assert refused.returncode == 1
    assert b"outside the target directory" in refused.stderr
    assert list(tmp_path.iterdir()) == [], "what was refused is not left in part"
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own").write_text("mine")
    refused = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/d/.", str(tmp_path / "there"))
    assert f"files unpacked before the error are in {tmp_path}/there".encode() in refused.stderr
    assert (tmp_path / "there" / "own").read_text() == "mine"
    assert not (tmp_path / "there" / "out").is_symlink()
    server.text("sandbox", "cp", "--skip-unsafe", f"{own_sandbox}:/workspace/d", str(tmp_path / "e"))
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
def test_mistakes_are_told(server: Server, sandbox: str, source: str, target: str, message: str) -> None:
    done = server.run("sandbox", "cp", source.format(sandbox=sandbox), target.format(sandbox=sandbox))
    assert done.returncode in (1, 2)
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_from_one_sandbox_to_another(server: Server, own_sandbox: str, tree: Path, tmp_path: Path) -> None:
    other = server.text("sandbox", "create", "-q")
    server.text("sandbox", "cp", str(tree), f"{own_sandbox}:/workspace/tree")
    done = server.json("sandbox", "cp", f"{own_sandbox}:/workspace/tree", f"{other}:/workspace/")
    assert done["destinationPath"] == "/workspace/tree" and done["type"] == "directory"
    server.text("sandbox", "cp", f"{other}:/workspace/tree", str(tmp_path / "back"))
    compare(tree, tmp_path / "back")
    failed = server.run("sandbox", "cp", f"{own_sandbox}:/workspace/none", f"{other}:/workspace/")
    assert failed.returncode == 1 and b"there is no" in failed.stderr
    server.text("sandbox", "rm", other)
