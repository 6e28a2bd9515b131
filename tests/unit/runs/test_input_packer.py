"""Inputs of tasks: lookup, rejection and reproducible packing."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import socket
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from paddock.errors import InvalidInput
from paddock.model.task import Task
from paddock.runs.inputs.input_packer import PackedInputs, pack_inline_inputs, pack_inputs
from paddock.runs.tasks.task_file_loader import load_task_file
from paddock.runs.tasks.task_problems import InvalidTaskError

BASE = "name: demo\ngoal: Do it.\nagent: codex\n"
FIXED_TIME = 1_600_000_000


def pack(directory: Path, inputs: str) -> tuple[PackedInputs, dict[str, tarfile.TarInfo], dict[str, bytes]]:
    path = directory / "t.yaml"
    path.write_text(f"{BASE}inputs:\n{inputs}")
    sink = io.BytesIO()
    packed = pack_inputs(load_task_file(path), sink)
    assert packed is not None
    data = sink.getvalue()
    assert (packed.size, packed.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
        names = [member.name for member in members]
        assert len(set(names)) == len(names), "nothing is packed twice"
        assert packed.count == sum(not member.isdir() for member in members)
        contents = {each.name: _read(archive, each) for each in members if each.isreg()}
    return packed, {member.name: member for member in members}, contents


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def load_error(directory: Path, inputs: str) -> str:
    path = directory / "t.yaml"
    path.write_text(f"{BASE}inputs:\n{inputs}")
    with pytest.raises(InvalidTaskError) as raised:
        load_task_file(path)
    return raised.value.message.replace(f"{directory}/", "")


def git(directory: Path, *words: str) -> str:
    config = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    identity = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _GIT_IDENTITY}
    done = subprocess.run(["git", *words], cwd=directory, env={**config, **identity}, capture_output=True, check=True)
    return done.stdout.decode().strip()


_GIT_IDENTITY = (("NAME", "Ana"), ("EMAIL", "ana@example.org"), ("DATE", f"{FIXED_TIME} +0000"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits on `main`, the first of them tagged `v1`, and a branch `side`."""
    path = tmp_path / "project"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "a.txt").write_text("one\n")
    (path / "away").symlink_to("/etc/hostname")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "one")
    git(path, "tag", "v1")
    git(path, "branch", "side")
    (path / "a.txt").write_text("two\n")
    git(path, "commit", "--quiet", "-am", "two")
    return path


def test_a_task_without_inputs_packs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(BASE)
    sink = io.BytesIO()
    assert pack_inputs(load_task_file(path), sink) is None and sink.getvalue() == b""


def test_inputs_are_packed_at_their_targets(tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/b.txt").write_bytes(b"b")
    (tmp_path / "a.csv").write_bytes(b"a")
    inputs = (
        " - a.csv\n - {source: a.csv, target: /workspace/x/y.csv}\n - data\n"
        " - {source: data/deep, target: .}\n - {content: 'höhe', target: x/notes.txt}\n"
    )
    packed, members, contents = pack(tmp_path, inputs)
    assert contents == {
        "a.csv": b"a",
        "x/y.csv": b"a",
        "data/deep/b.txt": b"b",
        "b.txt": b"b",
        "x/notes.txt": "höhe".encode(),
    }
    assert packed.count == 5 and members["x"].isdir() and members["data/deep"].isdir()


def test_modes_and_times_are_kept_and_owners_are_not(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name, mode in (("d/run", 0o4755), ("d/secret", 0o600), ("d", 0o750)):
        (tmp_path / name).exists() or (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    for name in ("d/run", "d/secret", "d"):
        os.utime(tmp_path / name, (FIXED_TIME, FIXED_TIME + 0.5))
    _, members, _ = pack(tmp_path, " - d\n")
    # Bits that lend rights stay behind.
    assert {name: member.mode for name, member in members.items()} == {"d": 0o750, "d/run": 0o755, "d/secret": 0o600}
    assert {member.mtime for member in members.values()} == {FIXED_TIME}
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members.values()} == {(0, 0, "", "")}


def test_tar_is_reproducible(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    for name in ("d/b", "d/a", "d/sub/z", "d/c"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (FIXED_TIME, FIXED_TIME))
    for name in ("d/sub", "d"):
        os.utime(tmp_path / name, (FIXED_TIME, FIXED_TIME))
    inputs = " - d\n - {content: x, target: e/f}\n"
    first, members, _ = pack(tmp_path, inputs)
    assert list(members) == ["d", "d/a", "d/b", "d/c", "d/sub", "d/sub/z", "e", "e/f"]
    assert pack(tmp_path, inputs)[0] == first


def test_unusual_names_are_packed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    names = [b"with blank", "übung".encode(), b"-rf", b"line\nbreak", b"\xff\xfe", b"n" * 255]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path / "d") + b"/" + name)).write_bytes(name)
    _, _, contents = pack(tmp_path, " - d\n")
    assert {os.fsencode(name).removeprefix(b"d/"): content for name, content in contents.items()} == {
        n: n for n in names
    }


def test_links_within_the_directory_are_kept(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/a").write_text("a")
    (tmp_path / "d/link").symlink_to("sub/../a")
    (tmp_path / "d/sub/up").symlink_to("../a")
    (tmp_path / "d/dangling").symlink_to("nothing")
    (tmp_path / "d/self").symlink_to("self")
    _, members, _ = pack(tmp_path, " - d\n")
    links = {name: member.linkname for name, member in members.items() if member.issym()}
    assert links == {"d/link": "sub/../a", "d/sub/up": "../a", "d/dangling": "nothing", "d/self": "self"}


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("/etc/passwd", "is a link to '/etc/passwd', which is not the same place in the sandbox; make it relative"),
        ("../../secret", "is a link to '../../secret', which leaves the directory; copy what it leads to"),
        ("../here/../../secret", "which leaves the directory"),
    ],
)
def test_links_leaving_the_directory_are_refused(to: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    # Compared as text, `here/..` stays inside; resolved, it leaves the directory.
    (tmp_path / "d/here").symlink_to(".")
    (tmp_path / "d/sub/away").symlink_to(to)
    message = load_error(tmp_path, " - d\n")
    assert message.startswith("t.yaml:5: inputs.0: 'sub/away' is a link to") and reason in message


def test_input_that_is_a_link_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("r")
    (tmp_path / "named.csv").symlink_to("real.csv")
    assert pack(tmp_path, " - named.csv\n")[2] == {"named.csv": b"r"}


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(("make", "sort"), [(os.mkfifo, "a pipe"), (_socket, "a socket")])
def test_special_files_are_refused_as_inputs(
    make: Callable[[Path], None], sort: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # The address of a socket must be short.
    Path("d").mkdir()
    make(Path("d/odd"))
    make(Path("odd"))
    assert f"'odd' is {sort}; inputs are files, directories and links" in load_error(tmp_path, " - d\n")
    assert f"inputs.0: 'odd' is {sort}" in load_error(tmp_path, " - odd\n")


def test_a_device_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    try:
        os.mknod(tmp_path / "d/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")
    assert "inputs.0: 'null' is a device" in load_error(tmp_path, " - d\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_inputs_are_reported(tmp_path: Path) -> None:
    (tmp_path / "d/shut").mkdir(parents=True)
    (tmp_path / "d/a").write_text("a")
    (tmp_path / "d/a").chmod(0)
    (tmp_path / "d/shut").chmod(0)
    try:
        message = load_error(tmp_path, " - d\n - d/a\n")
    finally:
        (tmp_path / "d/shut").chmod(0o700)
    assert "inputs.0: 'a' cannot be read" in message and "inputs.0: 'shut' cannot be read" in message
    assert "inputs.1: 'd/a' cannot be read: you are not allowed to" in message


def test_listed_problems_of_a_directory_are_limited(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for i in range(30):
        os.mkfifo(tmp_path / f"d/p{i:02}")
    message = load_error(tmp_path, " - d\n").splitlines()
    assert len(message) == 10 and "'p00'" in message[0] and "'p09'" in message[-1]


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (" - d\n - {content: x, target: d/a}\n", "inputs.1: 'd/a' comes from inputs.0 too"),
        (" - {content: x, target: d/a}\n - d\n", "inputs.1: 'd/a' comes from inputs.0 too"),
        (" - d\n - {content: x, target: d/link/c}\n", "inputs.1: 'd/link' comes from inputs.0 too"),
        (" - d\n - {content: x, target: d/a/c}\n", "inputs.1: 'd/a' comes from inputs.0 too"),
        (" - {content: x, target: d}\n - {source: d, target: d/e}\n", "inputs.1: 'd' comes from inputs.0 too"),
        (" - d\n - e/d\n", "inputs.1: goes to 'd', as inputs.0 does; give one of them another 'target'"),
    ],
)
def test_conflicting_targets_are_reported(inputs: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "e/d").mkdir(parents=True)
    (tmp_path / "d/a").write_text("a")
    (tmp_path / "d/link").symlink_to("sub")
    assert reason in load_error(tmp_path, inputs)


def test_inputs_may_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("a")
    assert set(pack(tmp_path, " - d\n - {content: x, target: d/b}\n")[2]) == {"d/a", "d/b"}


def test_large_inputs_are_streamed(tmp_path: Path) -> None:
    size = 128 * 2**20
    with (tmp_path / "big").open("wb") as file:
        file.truncate(size)
    (tmp_path / "t.yaml").write_text(f"{BASE}inputs: big\n")
    loaded = load_task_file(tmp_path / "t.yaml")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open(os.devnull, "wb", buffering=0) as sink:
        packed = pack_inputs(loaded, cast(BinaryIO, sink))
    assert packed is not None and size < packed.size < size + 2**21 and packed.count == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_input_changed_after_the_check_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    (tmp_path / "a").write_text("a")
    path.write_text(f"{BASE}inputs: a\n")
    loaded = load_task_file(path)
    (tmp_path / "a").unlink()
    with pytest.raises(InvalidTaskError, match=r"t\.yaml: inputs\.0: there is no file 'a'"):
        pack_inputs(loaded, io.BytesIO())
    os.mkfifo(tmp_path / "a")
    with pytest.raises(InvalidTaskError, match=r"inputs\.0: 'a' is a pipe"):
        pack_inputs(loaded, io.BytesIO())


def test_file_truncated_during_packing_is_reported(tmp_path: Path) -> None:
    big, path = tmp_path / "big", tmp_path / "t.yaml"
    big.write_bytes(bytes(8 * 2**20))
    path.write_text(f"{BASE}inputs: big\n")

    class Shrinking(io.BytesIO):
        def write(self, data: object) -> int:
            os.truncate(big, 2**20)
            return super().write(cast(bytes, data))

    with pytest.raises(InvalidTaskError, match="'big' became shorter while it was packed; try again"):
        pack_inputs(load_task_file(path), Shrinking())


def test_write_errors_of_the_sink_are_raised(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(4 * 2**20))
    (tmp_path / "t.yaml").write_text(f"{BASE}inputs: a\n")
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        pack_inputs(load_task_file(tmp_path / "t.yaml"), cast(BinaryIO, full))


@pytest.mark.parametrize(
    ("inputs", "content", "branch"),
    [
        (" - git: project\n", b"two\n", "main"),
        (" - {git: project, ref: v1}\n", b"one\n", "HEAD"),
        (" - {git: project, ref: side}\n", b"one\n", "side"),
        (" - {git: project, ref: HEAD}\n", b"two\n", "main"),
    ],
)
def test_repository_is_cloned_at_the_requested_ref(
    inputs: str, content: bytes, branch: str, repository: Path, tmp_path: Path
) -> None:
    (repository / "a.txt").write_text("not committed\n")
    _, members, contents = pack(tmp_path, inputs)
    assert contents["project/a.txt"] == content
    # Committed links are only data in the sandbox; their targets do not matter.
    assert members["project/away"].linkname == "/etc/hostname"
    head = contents["project/.git/HEAD"].decode().strip()
    assert head == f"ref: refs/heads/{branch}" if branch != "HEAD" else len(head) == 40
    assert not any(name.startswith("project/.git/hooks") for name in members)
    assert not any(str(tmp_path).encode() in each for each in contents.values()), "the source path is not in the clone"
    assert members["project/a.txt"].mtime == FIXED_TIME


def test_packed_clone_is_a_clean_repository(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD~1")
    path = tmp_path / "t.yaml"
    path.write_text(f"{BASE}inputs:\n - {{git: project, ref: {commit}, target: .}}\n")
    with (tmp_path / "in.tar").open("wb") as sink:
        pack_inputs(load_task_file(path), sink)
    (tmp_path / "box").mkdir()
    subprocess.run(["tar", "--no-same-owner", "-xpf", tmp_path / "in.tar", "-C", tmp_path / "box"], check=True)
    assert git(tmp_path / "box", "rev-parse", "HEAD") == commit
    assert git(tmp_path / "box", "status", "--porcelain") == "" and git(tmp_path / "box", "remote") == ""


def test_a_bundle_is_cloned_under_its_own_name(repository: Path, tmp_path: Path) -> None:
    git(repository, "bundle", "create", "--quiet", str(tmp_path / "work.bundle"), "HEAD", "main")
    assert pack(tmp_path, " - git: work.bundle\n")[2]["work/a.txt"] == b"two\n"
    git(repository, "bundle", "create", "--quiet", str(tmp_path / "side.bundle"), "side")
    assert "'side.bundle' has no HEAD; add 'ref', which may be: side" in load_error(tmp_path, " - git: side.bundle\n")
    assert pack(tmp_path, " - {git: side.bundle, ref: side}\n")[2]["side/a.txt"] == b"one\n"


def test_the_project_of_a_task_can_be_cloned(repository: Path) -> None:
    (repository / "tasks").mkdir()
    assert pack(repository / "tasks", " - git: ..\n")[2]["project/a.txt"] == b"two\n"


def test_hooks_and_filters_are_not_executed(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    for hook in ("post-checkout", "reference-transaction", "pre-auto-gc"):
        (repository / ".git/hooks").mkdir(exist_ok=True)
        (repository / f".git/hooks/{hook}").symlink_to(trap)
    home, template = tmp_path / "home", tmp_path / "home/template/hooks"
    template.mkdir(parents=True)
    (template / "post-checkout").symlink_to(trap)
    (home / ".gitconfig").write_text(
        f'[init]\n templateDir = {template.parent}\n[core]\n hooksPath = {template}\n fsmonitor = {trap}\n'
        f'[filter "trap"]\n smudge = {trap}\n'
    )  # fmt: skip
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(template.parent))
    (repository / ".gitattributes").write_text("* filter=trap\n")
    git(repository, "add", ".gitattributes")
    git(repository, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "-m", "three")
    (tmp_path / "sprung").unlink(missing_ok=True)
    assert pack(tmp_path, " - git: project\n")[2]["project/a.txt"] == b"two\n"
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (" - git: empty\n", "inputs.0: 'empty' has no commits yet; commit something"),
        (" - git: plain\n", "inputs.0: 'plain' git says: "),
        (" - git: t.yaml\n", "inputs.0: 't.yaml' is neither a git repository nor a bundle"),
        (" - git: torn.bundle\n", "inputs.0: 'torn.bundle' git says: "),
        (" - {git: project, ref: none}\n", "inputs.0: 'project' has no branch or tag 'none'; there is: main, side, v1"),
        (" - git: https://example.org/x.git\n", "there is no file 'https://example.org/x.git'"),
        (" - git: 'ext::sh -c true'\n", "there is no file 'ext::sh -c true'"),
    ],
)
def test_unclonable_repositories_are_reported_when_loading(
    inputs: str, reason: str, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    git(tmp_path, "init", "--quiet", "empty")
    (tmp_path / "torn.bundle").write_bytes(b"# v2 git bundle\nnonsense\n")
    assert reason in load_error(tmp_path, inputs)


def test_unknown_commit_is_reported(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"{BASE}inputs:\n - {{git: project, ref: deadbeef}}\n")
    with pytest.raises(InvalidTaskError, match=r"inputs\.0: 'project' has no branch, tag or commit 'deadbeef'"):
        pack_inputs(load_task_file(path), io.BytesIO())


def test_inline_inputs_are_packed_without_a_task_file() -> None:
    document = {"name": "a", "goal": "b", "agent": "codex", "inputs": [{"content": "x", "target": "d/a.txt"}]}
    first, second = io.BytesIO(), io.BytesIO()
    packed = pack_inline_inputs(Task.model_validate(document), first)
    assert packed is not None and packed == pack_inline_inputs(Task.model_validate(document), second)
    with tarfile.open(fileobj=io.BytesIO(first.getvalue())) as archive:
        assert archive.getnames() == ["d", "d/a.txt"]
    with pytest.raises(InvalidInput, match="a request cannot carry files"):
        pack_inline_inputs(Task.model_validate({**document, "inputs": ["/etc/passwd"]}), io.BytesIO())
