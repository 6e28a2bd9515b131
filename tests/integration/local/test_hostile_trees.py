"""Hostile file trees of a sandbox can be measured, stored, restored and removed."""

from __future__ import annotations

import os
import time

import pytest
from tests.contract.backends.support import LocalBackendHarness

from paddock.errors import SandboxError

DEEP = """
import os
import sys
os.chdir(sys.argv[1])
for _ in range(int(sys.argv[2])):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").close()
"""

NAMES = """
import os
os.chdir(b"/workspace")
for name in (b"\\xff\\xfe", b"line\\nbreak", b"-rf", b"--", b"x" * 255, b"\\x01\\x7f", b" ", b"$(id)", b"*", b"\\\\"):
    open(name, "w").close()
    os.mkdir(name[:200] + b".d")
    os.symlink(name, name[:200] + b".l")
os.mkfifo(b"fifo")
import socket
socket.socket(socket.AF_UNIX).bind("/workspace/socket")
os.link(b"fifo", b"fifo2")
"""

CLOSED = """
import os
os.chdir("/workspace")
for level in range(5):
    os.makedirs(f"a{level}/b/c")
    open(f"a{level}/b/c/file", "w").write("inside")
    os.chmod(f"a{level}/b/c/file", 0)
    os.chmod(f"a{level}/b/c", 0)
    os.chmod(f"a{level}/b", 0)
    os.chmod(f"a{level}", 0)
os.makedirs(os.path.expanduser("~/x/y"))
os.chmod(os.path.expanduser("~/x/y"), 0)
os.chmod(os.path.expanduser("~/x"), 0)
"""


@pytest.mark.parametrize("code", [DEEP, NAMES, CLOSED], ids=["deep", "names", "closed"])
def test_hostile_tree_is_measured_stored_restored_and_removed(harness: LocalBackendHarness, code: str) -> None:
    with harness.sandbox() as running_sandbox:
        made = running_sandbox.python(code, "/workspace", "1100")
        assert made.exit_code == 0, made.stderr
        assert harness.do(harness.backend.disk_used(running_sandbox.record)) > 0
        harness.do(harness.backend.snapshot(running_sandbox.record, "hostile"))
    assert not running_sandbox.files.directory.exists()
    with harness.sandbox(snapshot="hostile") as copy:
        assert copy.answers()
        if code is CLOSED:
            assert (
                copy.output("chmod 700 /workspace/a3 /workspace/a3/b /workspace/a3/b/c; ls /workspace/a3/b/c")
                == "file\n"
            )
    harness.do(harness.backend.delete_snapshot("hostile"))
    assert harness.do(harness.backend.snapshots()) == []


def test_deep_home_directory_does_not_block_start_from_snapshot(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        made = running_sandbox.python(DEEP, "/home/agent", "1100")
        assert made.exit_code == 0, made.stderr
        harness.do(harness.backend.snapshot(running_sandbox.record, "deep-home"))
    with harness.sandbox(snapshot="deep-home") as copy:
        assert copy.answers()
    harness.do(harness.backend.delete_snapshot("deep-home"))


def test_tree_too_deep_for_any_path_is_refused_and_removed(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        made = running_sandbox.python(DEEP, "/workspace", "5000")
        assert made.exit_code == 0, made.stderr
        assert harness.do(harness.backend.disk_used(running_sandbox.record)) > 5000 * 4096
        with pytest.raises(SandboxError, match="could not be copied"):
            harness.do(harness.backend.snapshot(running_sandbox.record, "too-deep"))
        assert harness.do(harness.backend.snapshots()) == []
        assert running_sandbox.answers()
    assert not running_sandbox.files.directory.exists()


def test_many_files_are_removed_quickly(harness: LocalBackendHarness) -> None:
    running_sandbox = harness.start()
    assert running_sandbox.python("for n in range(20000): open(f'/workspace/{n}', 'w').close()").exit_code == 0
    begin = time.monotonic()
    harness.remove(running_sandbox)
    assert time.monotonic() - begin < 5


def test_far_future_timestamps_are_harmless(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        running_sandbox.output("touch -d 2099-01-01 /workspace/f /workspace; touch -d 1901-01-01 /workspace/g")
        harness.do(harness.backend.snapshot(running_sandbox.record, "times"))
        assert harness.do(harness.backend.disk_used(running_sandbox.record)) > 0
    with harness.sandbox(snapshot="times") as copy:
        assert copy.output("stat -c %y /workspace/f").startswith("2099-01-01")
    harness.do(harness.backend.delete_snapshot("times"))


def test_sandbox_cannot_create_files_of_other_owners(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as running_sandbox:
        running_sandbox.run("chown 0:0 /workspace; touch /workspace/f; chown 0 /workspace/f; chgrp 5 /workspace/f")
        found = (running_sandbox.files.workspace / "f").stat()
        assert found.st_uid == (running_sandbox.record["uid"] or os.geteuid())
        group = 5 if running_sandbox.root_mode and os.geteuid() == 0 else 0
        assert group or found.st_gid in ((running_sandbox.record["uid"] or os.getegid()), 100_004)
        assert not group or found.st_gid == running_sandbox.record["uid"] + group
