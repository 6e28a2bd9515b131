"""Whatever a box leaves on the disk can be measured, kept, restored and removed."""

from __future__ import annotations

import os
import time

import pytest
from tests.contract.backends.support import Yard

from paddock.errors import BoxError

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
def test_a_hostile_tree_is_measured_kept_restored_and_removed(place: Yard, code: str) -> None:
    with place.box() as pen:
        made = pen.python(code, "/workspace", "1100")
        assert made.exit_code == 0, made.stderr
        assert place.do(place.backend.disk_used(pen.record)) > 0
        place.do(place.backend.snapshot(pen.record, "hostile"))
    assert not pen.files.directory.exists()
    with place.box(snapshot="hostile") as copy:
        assert copy.answers()
        if code is CLOSED:
            assert (
                copy.output("chmod 700 /workspace/a3 /workspace/a3/b /workspace/a3/b/c; ls /workspace/a3/b/c")
                == "file\n"
            )
    place.do(place.backend.delete_snapshot("hostile"))
    assert place.do(place.backend.snapshots()) == []


def test_a_deep_tree_in_the_home_directory_does_not_keep_a_copy_from_starting(place: Yard) -> None:
    with place.box() as pen:
        made = pen.python(DEEP, "/home/agent", "1100")
        assert made.exit_code == 0, made.stderr
        place.do(place.backend.snapshot(pen.record, "deep-home"))
    with place.box(snapshot="deep-home") as copy:
        assert copy.answers()
    place.do(place.backend.delete_snapshot("deep-home"))


def test_a_tree_too_deep_for_any_path_is_refused_and_removed(place: Yard) -> None:
    with place.box() as pen:
        made = pen.python(DEEP, "/workspace", "5000")
        assert made.exit_code == 0, made.stderr
        assert place.do(place.backend.disk_used(pen.record)) > 5000 * 4096
        with pytest.raises(BoxError, match="could not be copied"):
            place.do(place.backend.snapshot(pen.record, "too-deep"))
        assert place.do(place.backend.snapshots()) == []
        assert pen.answers()
    assert not pen.files.directory.exists()


def test_many_files_go_quickly(place: Yard) -> None:
    pen = place.start()
    assert pen.python("for n in range(20000): open(f'/workspace/{n}', 'w').close()").exit_code == 0
    begin = time.monotonic()
    place.remove(pen)
    assert time.monotonic() - begin < 5


def test_times_in_the_far_future_change_nothing(place: Yard) -> None:
    with place.box() as pen:
        pen.output("touch -d 2099-01-01 /workspace/f /workspace; touch -d 1901-01-01 /workspace/g")
        place.do(place.backend.snapshot(pen.record, "times"))
        assert place.do(place.backend.disk_used(pen.record)) > 0
    with place.box(snapshot="times") as copy:
        assert copy.output("stat -c %y /workspace/f").startswith("2099-01-01")
    place.do(place.backend.delete_snapshot("times"))


def test_a_box_cannot_pass_its_files_off_as_somebody_elses(place: Yard) -> None:
    with place.box() as pen:
        pen.run("chown 0:0 /workspace; touch /workspace/f; chown 0 /workspace/f; chgrp 5 /workspace/f")
        owner = (pen.files.workspace / "f").stat().st_uid
        assert owner == (pen.record["uid"] or os.geteuid())
        assert (pen.files.workspace / "f").stat().st_gid == (pen.record["uid"] or os.getegid())
