"""Collecting deliverables of ordinary and hostile sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.runs.results.deliverable_collector import CollectedDeliverables, DeliverableLimits, collect_deliverables
from paddock.runs.results.deliverable_receiver import PARTIAL_FILE_NAME
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, host_image, kill, local_backend
from tests.integration.runs.collection_support import deliverables_for, delivered_paths, missing_reason, stored_paths


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackendHarness]:
    with local_backend(tmp_path_factory.mktemp("data"), host_image(tmp_path_factory.mktemp("images"))) as created:
        yield created


@pytest.fixture(scope="module")
def shared(harness: LocalBackendHarness) -> Iterator[RunningSandbox]:
    with harness.sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def running_sandbox(shared: RunningSandbox) -> RunningSandbox:
    """A sandbox with an empty workspace."""
    shared.output("chmod -R u+rwx /workspace; find /workspace -mindepth 1 -delete")
    return shared


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs", "run-1")


def collect(
    running_sandbox: RunningSandbox, folder: RunFolder, *paths: str | dict[str, Any], **limits: Any
) -> CollectedDeliverables:
    async def run_collection() -> CollectedDeliverables:
        async with DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as daemon:
            return await collect_deliverables(
                daemon, deliverables_for(*paths), folder, limits=DeliverableLimits(**limits)
            )

    return asyncio.run(asyncio.wait_for(run_collection(), 60))


@contextmanager
def background_command(running_sandbox: RunningSandbox, command: str) -> Iterator[None]:
    """Run a background command in the sandbox."""

    async def stop() -> None:
        async with DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as daemon:
            await daemon.interrupt(command_id)

    command_id = running_sandbox.start(command)
    try:
        yield
    finally:
        asyncio.run(asyncio.wait_for(stop(), 20))


def test_a_file_comes_back_with_its_checksum(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.write("/workspace/report.md", b"# Report\n", mode=777)
    collected = collect(running_sandbox, folder, "report.md")
    [delivered] = collected.delivered
    assert (delivered.path, delivered.size, delivered.note) == ("report.md", 9, "")
    assert delivered.sha256 == hashlib.sha256(b"# Report\n").hexdigest()
    assert collected.missing == () and collected.notes == () and collected.broken is None
    stored = folder.deliverables / "report.md"
    assert stored.read_bytes() == b"# Report\n"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o700, "may be run by its owner, and no more"
    assert stored.stat().st_uid == os.geteuid()


def test_deliverables_keep_their_paths(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output(
        "cd /workspace; mkdir -p out/deep /tmp/agent; echo a > out/a; echo b > out/deep/.b; echo x > /tmp/agent/x"
    )
    collected = collect(running_sandbox, folder, "out/**", "/tmp/agent/x")
    assert delivered_paths(collected) == ["out/a", "out/deep/.b", "tmp/agent/x"]
    assert stored_paths(folder) == delivered_paths(collected)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.md", ["a.md", "b.md"]),
        ("?.md", ["a.md", "b.md"]),
        ("[!a].md", ["b.md"]),
        ("**/*.md", ["a.md", "b.md", "sub/.dot/d.md", "sub/c.md"]),
        ("**", [".hidden", "a.md", "b.md", "c[1].txt", "sub/.dot/d.md", "sub/c.md", "sub/e.txt"]),
        ("sub", ["sub/.dot/d.md", "sub/c.md", "sub/e.txt"]),
        ("s*", ["sub/.dot/d.md", "sub/c.md", "sub/e.txt"]),
        ("sub/*/d.md", ["sub/.dot/d.md"]),
        ("**/sub/**/*.md", ["sub/.dot/d.md", "sub/c.md"]),
        ("**/**/**/**/**/**/**/**/c.md", ["sub/c.md"]),
        (".*", [".hidden"]),
        ("c[1].txt", ["c[1].txt"]),
        ("/workspace", [".hidden", "a.md", "b.md", "c[1].txt", "sub/.dot/d.md", "sub/c.md", "sub/e.txt"]),
    ],
)
def test_patterns_select_files(
    running_sandbox: RunningSandbox, folder: RunFolder, pattern: str, found: list[str]
) -> None:
    running_sandbox.output(
        "cd /workspace; mkdir -p sub/.dot; for f in a.md b.md .hidden 'c[1].txt' sub/c.md sub/e.txt sub/.dot/d.md;"
        " do echo $f > $f; done"
    )
    collected = collect(running_sandbox, folder, pattern)
    assert delivered_paths(collected) == found
    assert not collected.missing


def test_missing_deliverables_are_listed_with_reasons(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; mkdir empty; echo x > file")
    collected = collect(
        running_sandbox, folder, "report.md", {"path": "*.png", "required": False}, "empty", "no/such/**", "file/x"
    )
    assert [(each.path, each.required, each.reason) for each in collected.missing] == [
        ("/workspace/report.md", True, "there is no such file"),
        ("/workspace/*.png", False, "nothing fits this pattern"),
        ("/workspace/empty", True, "empty is an empty directory"),
        ("/workspace/no/such/**", True, "nothing fits this pattern"),
        ("/workspace/file/x", True, "there is no such file"),
    ]


def test_file_named_by_two_deliverables_is_collected_once(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; echo a > a.md; echo b > b.md")
    collected = collect(running_sandbox, folder, "a.md", "*.md", "**")
    assert delivered_paths(collected) == ["a.md", "b.md"] and not collected.missing


def test_names_differing_in_case_or_unicode_form_are_kept(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    created = ["Read.md", "caf\u00e9", "cafe\u0301", "read.md"]
    running_sandbox.python(
        "import sys\nfor name in sys.argv[1:]: open('/workspace/' + name, 'w').write(name)", *created
    )
    collected = collect(running_sandbox, folder, "**")
    assert delivered_paths(collected) == sorted(created)
    assert all((folder.deliverables / name).read_text() == name for name in created)


def test_second_collection_replaces_the_first(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; mkdir -p dir old; echo 1 > a; echo 1 > dir/b; echo 1 > swap; echo 1 > old/x")
    assert delivered_paths(collect(running_sandbox, folder, "**")) == ["a", "dir/b", "old/x", "swap"]
    running_sandbox.output("cd /workspace; echo 2 > a; rm -r old dir swap; mkdir swap; echo 2 > swap/c; echo 2 > dir")
    for _ in range(2):
        collected = collect(running_sandbox, folder, "**")
        assert delivered_paths(collected) == stored_paths(folder) == ["a", "dir", "swap/c"]
        assert (folder.deliverables / "a").read_text() == "2\n"
        assert not (folder.deliverables / "old").exists()


def test_files_left_by_a_crashed_server_are_removed(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("echo new > /workspace/a")
    folder.create()
    (folder.deliverables / "sub").mkdir()
    (folder.deliverables / "sub" / PARTIAL_FILE_NAME).write_text("half")
    (folder.deliverables / "stale").write_text("stale")
    assert delivered_paths(collect(running_sandbox, folder, "a")) == stored_paths(folder) == ["a"]


def test_named_link_delivers_the_linked_sandbox_file(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; echo inner > inner; ln -s inner relative; ln -s /workspace/inner absolute")
    collected = collect(running_sandbox, folder, "relative", "absolute")
    assert delivered_paths(collected) == ["absolute", "relative"]
    assert not (folder.deliverables / "relative").is_symlink()
    assert (folder.deliverables / "absolute").read_text() == "inner\n"


@pytest.mark.parametrize("target", ["/nowhere", "loop", ".", "/dev/zero", "/proc/self/environ", "../../../../x"])
def test_link_to_a_non_file_is_missing(running_sandbox: RunningSandbox, folder: RunFolder, target: str) -> None:
    running_sandbox.output(f"cd /workspace; ln -s {target} loop; test -L loop")
    collected = collect(running_sandbox, folder, "loop")
    assert not collected.delivered and stored_paths(folder) == []
    assert "loop is" in missing_reason(collected)


def test_links_never_deliver_host_files(running_sandbox: RunningSandbox, folder: RunFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    running_sandbox.output(f"ln -s {secret} /workspace/key; ln -s {tmp_path} /workspace/way")
    collected = collect(running_sandbox, folder, "key", "way/**", "way/secret")
    assert not collected.delivered and len(collected.missing) == 3


def test_links_in_a_directory_are_left_out_with_a_note(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output(
        "cd /workspace; mkdir out; echo a > out/a; ln -s a out/b; ln -s /etc out/etc; ln -s nowhere out/c"
    )
    collected = collect(running_sandbox, folder, "out")
    assert delivered_paths(collected) == ["out/a"] and not collected.missing
    assert collected.notes == tuple(f"out/{name} is a symbolic link and was left out" for name in ("b", "c", "etc"))
    running_sandbox.output("rm /workspace/out/a")
    assert (
        missing_reason(collect(running_sandbox, folder, "out"))
        == "there is nothing in it but links, pipes, sockets and the like"
    )


def test_special_files_are_refused_as_deliverables(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; mkfifo pipe; mkdir d; mkfifo d/pipe; echo x > d/x")
    running_sandbox.python("import socket; socket.socket(socket.AF_UNIX).bind('/workspace/socket')")
    collected = collect(running_sandbox, folder, "pipe", "socket", "/dev/null", "/proc/1/status", "d")
    assert delivered_paths(collected) == ["d/x"]
    assert [each.reason for each in collected.missing] == [
        "pipe is a named pipe",
        "socket is a socket",
        "/dev/null is a device",
        "/proc/1/status is not a file but a view into the kernel",
    ]
    assert collected.notes == ("d/pipe is a named pipe and was left out",)


def test_harmful_names_are_refused_and_others_collected(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    code = """
import os
os.makedirs("/workspace/out")
for name in (b"fine", b"new\\nline", b"\\x1b[2Jclear", b"bad-\\xff-utf8", b"\\xc2\\x9bcsi", b"-rf", b"a b\\\\c",
             b"\\xe2\\x80\\xaetxt.exe"):
    open(b"/workspace/out/" + name, "w").write("x")
long = "/workspace/out/" + "/".join(["d" * 200] * 6)
os.makedirs(long)
open(long + "/file", "w").write("x")
"""
    assert running_sandbox.python(code).exit_code == 0
    collected = collect(running_sandbox, folder, "out")
    escaped = ["out/%1B[2Jclear", "out/%C2%9Bcsi", "out/%E2%80%AEtxt.exe", "out/new%0Aline"]
    assert delivered_paths(collected) == sorted([*escaped, "out/-rf", "out/a b\\c", "out/fine"])
    messages = "".join((missing_reason(collected), *collected.notes))
    assert messages.isprintable(), "a terminal obeys nothing of it"
    assert "has control characters in its name; it is kept as out/%1B[2Jclear" in messages
    assert "not UTF-8" in messages and "too long a name" in messages


def test_unreadable_files_are_missing(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output(
        "cd /workspace; mkdir out out/closed; echo x > out/x; echo y > out/y; chmod 0 out/closed out/y"
    )
    collected = collect(running_sandbox, folder, "out")
    assert delivered_paths(collected) == ["out/x"]
    assert missing_reason(collected) == "out/closed may not be read; out/y may not be read"


def test_file_above_the_size_limit_is_not_transferred(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output(
        "cd /workspace; mkdir out; echo small > out/small; truncate -s 5G out/huge; truncate -s 8G bomb"
    )
    collected = collect(running_sandbox, folder, "out", {"path": "bomb", "required": False})
    assert delivered_paths(collected) == ["out/small"]
    assert [each.reason for each in collected.missing] == [
        "out/huge has 5368709120 bytes; the deliverable's max_size is 2Gi",
        "bomb has 8589934592 bytes; the deliverable's max_size is 2Gi",
    ]


def test_size_limit_applies_to_all_files_of_a_deliverable(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; for f in a b c; do head -c 400 /dev/zero > $f; done")
    collected = collect(running_sandbox, folder, {"path": "?", "max_size": 1000}, {"path": "c", "max_size": 400})
    assert delivered_paths(collected) == ["a", "b", "c"], "what one has no room for, another may have"
    assert missing_reason(collected) == (
        "c has 400 bytes; the deliverable's max_size is 1000, 800 bytes of which other files have"
    )


def test_growing_file_is_collected_at_its_first_size(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("head -c 20000000 /dev/zero > /workspace/log")
    with background_command(running_sandbox, "while :; do echo more; done >> /workspace/log"):
        running_sandbox.output("while [ $(stat -c %s /workspace/log) -le 20000000 ]; do :; done")
        collected = collect(running_sandbox, folder, "log")
        for _ in range(5):  # On a busy machine the writer may stand still meanwhile.
            if collected.notes:
                break
            collected = collect(running_sandbox, folder, "log")
    [delivered] = collected.delivered
    assert delivered.size >= 20_000_000 and delivered.note.startswith("grew while it was read")
    content = (folder.deliverables / "log").read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (delivered.size, delivered.sha256)
    assert not collected.missing and len(collected.notes) == 1


def test_changing_file_is_collected_consistently_or_not_at_all(
    running_sandbox: RunningSandbox, folder: RunFolder
) -> None:
    with background_command(running_sandbox, "cd /workspace; while :; do head -c 3000000 /dev/zero > f; : > f; done"):
        running_sandbox.output("while [ ! -e /workspace/f ]; do :; done")
        for _ in range(10):
            collected = collect(running_sandbox, folder, "f")
            for each in collected.delivered:
                content = (folder.deliverables / "f").read_bytes()
                assert (len(content), hashlib.sha256(content).hexdigest()) == (each.size, each.sha256)
            if collected.missing:
                assert "could not be read to its end" in missing_reason(collected)
                assert stored_paths(folder) == []


def test_files_beyond_the_limit_are_not_collected(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; mkdir out; cd out; seq 300 | xargs touch; echo x > ../report.md")
    collected = collect(running_sandbox, folder, "report.md", "out", "report.md", "**", files=100)
    assert len(collected.delivered) == 100 == len(stored_paths(folder))
    assert [each.path for each in collected.missing] == ["/workspace/out", "/workspace/**"]
    assert "more than 100 files" in collected.missing[0].reason


def test_bytes_beyond_the_total_limit_are_not_collected(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output("cd /workspace; for f in a b c; do head -c 1000000 /dev/zero > $f; done")
    collected = collect(running_sandbox, folder, "a", "b", "c", size=2_500_000)
    assert delivered_paths(collected) == ["a", "b"] == stored_paths(folder)
    assert missing_reason(collected) == "it did not come: the sandbox sent more than a run may deliver in total"


def test_very_deep_directories_are_refused(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    code = """
import os
os.chdir("/workspace")
open("top", "w").write("x")
for _ in range(1500):
    os.mkdir("d"); os.chdir("d")
open("bottom", "w").write("x")
"""
    assert running_sandbox.python(code).exit_code == 0
    collected = collect(running_sandbox, folder, "**")
    assert delivered_paths(collected) == ["top"]
    assert "too many directories within each other" in missing_reason(collected)
    running_sandbox.output("rm -r /workspace/d")


def test_second_file_with_the_same_target_path_is_refused(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    running_sandbox.output(
        "mkdir -p /workspace/tmp /tmp/same; echo workspace > /workspace/tmp/same.txt; echo tmp > /tmp/same.txt"
    )
    collected = collect(running_sandbox, folder, "tmp/same.txt", "/tmp/same.txt")
    assert delivered_paths(collected) == ["tmp/same.txt"]
    assert (folder.deliverables / "tmp/same.txt").read_text() == "workspace\n"
    assert "would replace a file received before it" in missing_reason(collected)


def test_thousands_of_files_are_collected(running_sandbox: RunningSandbox, folder: RunFolder) -> None:
    code = """
import os
for n in range(5000):
    os.makedirs(f"/workspace/{n % 50}", exist_ok=True)
    open(f"/workspace/{n % 50}/{n}", "w").write(str(n))
"""
    assert running_sandbox.python(code).exit_code == 0
    collected = collect(running_sandbox, folder, "**")
    assert len(collected.delivered) == 5000 and not collected.missing
    assert (folder.deliverables / "7/4957").read_text() == "4957"


def test_sandbox_death_keeps_received_files(harness: LocalBackendHarness, folder: RunFolder) -> None:
    with harness.sandbox() as running_sandbox:
        running_sandbox.output("cd /workspace; echo early > a; head -c 50000000 /dev/zero > b; mkfifo p; ln -s a z")

        async def run_collection() -> CollectedDeliverables:
            async with DaemonClient(running_sandbox.backend.daemon_address(running_sandbox.record)) as daemon:
                work = asyncio.create_task(collect_deliverables(daemon, deliverables_for("a", "b", "c", "b"), folder))
                while not (folder.deliverables / "a").exists():
                    assert not work.done(), work.result()
                    await asyncio.sleep(0)
                kill(running_sandbox.first_process)
                return await work

        collected = asyncio.run(asyncio.wait_for(run_collection(), 30))
    assert "a" in delivered_paths(collected) and stored_paths(folder) == delivered_paths(collected)
    if collected.broken is not None:  # All of it may have been on its way before the sandbox was dead.
        assert collected.missing[-1].reason.startswith("it did not come: the sandbox")


def test_dead_sandbox_keeps_files_of_an_earlier_collection(harness: LocalBackendHarness, folder: RunFolder) -> None:
    with harness.sandbox() as running_sandbox:
        running_sandbox.output("cd /workspace; mkdir out; echo first > a; echo x > out/x")
        first = collect(running_sandbox, folder, "a", "out")
        kill(running_sandbox.first_process)
        second = collect(running_sandbox, folder, "a", "out", "b")
    assert [(each.path, each.sha256) for each in second.delivered] == [(e.path, e.sha256) for e in first.delivered]
    assert all("earlier collection" in each.note for each in second.delivered)
    assert [each.path for each in second.missing] == ["/workspace/out", "/workspace/b"]
