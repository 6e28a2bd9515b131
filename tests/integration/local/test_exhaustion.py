"""A box that takes all it can get takes it from itself."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Iterator

import pytest
from tests.contract.backends.support import Pen, Yard, eventually

from paddock.errors import BoxGone
from paddock.model.sandbox import BoxHealth, Limits
from paddock.sandbox.base import Feature
from paddock.sandbox.local import processes

MIB = 2**20
SMALL = Limits(memory=128 * MIB, pids=64, files=256, disk=64 * MIB, cpu=1)


@pytest.fixture
def small(place: Yard) -> Iterator[Pen]:
    with place.box(limits=SMALL) as box:
        yield box


def needs_memory_limit(place: Yard) -> None:
    if Feature.MEMORY_LIMIT not in place.backend.features:
        pytest.skip("no memory control group on this machine for this user")


def test_a_fork_bomb_burns_out_in_its_box(place: Yard, neighbour: Pen) -> None:
    pen = place.start(limits=SMALL)
    pen.start("bomb() { bomb | bomb & }; bomb; while :; do bomb; done")
    host = len(os.listdir("/proc"))
    begin = time.monotonic()
    assert neighbour.answers()
    assert time.monotonic() - begin < 3
    assert len(os.listdir("/proc")) < host + 200
    begin = time.monotonic()
    place.remove(pen)
    assert time.monotonic() - begin < 3
    assert pen.status().health is BoxHealth.GONE


def test_a_box_whose_processes_are_used_up_can_still_be_ended(place: Yard) -> None:
    with place.box(limits=SMALL) as pen:
        pen.start("for i in $(seq 200); do sleep 600 & done; wait")
        eventually(lambda: _members(pen) >= 40)
        asyncio.run(place.backend.end_commands(pen.record))
        assert pen.answers()


PREALLOCATING = """
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
fd = os.open("/workspace/ahead", os.O_RDWR | os.O_CREAT)
def attempt(mode):
    return 0 if libc.fallocate(fd, mode, 0, 2**24) == 0 else ctypes.get_errno()
print([attempt(mode) for mode in (0x0, 0x1, 0x10, 0x11, 0x20, 0x40)])
for request in (0x40305828, 0x4030582A, 0x40305839):
    try: fcntl.ioctl(fd, request, struct.pack("hhqqiI16x", 0, 0, 0, 2**24, 0, 0)); print("done")
    except OSError as error: print(error.errno)
print(os.fstat(fd).st_blocks, os.fstat(fd).st_size)
os.posix_fallocate(fd, 0, 2**20)
print(os.fstat(fd).st_size, attempt(0x3))
"""


def test_space_is_taken_by_writing_only(pen: Pen) -> None:
    """What a box may write is measured, and space that is set aside without writing could not be kept up with."""
    refused = f"{errno.EOPNOTSUPP}"
    assert pen.python(PREALLOCATING).stdout.decode().split("\n") == [
        f"[{', '.join([refused] * 6)}]",
        *[refused] * 3,
        "0 0",
        f"{2**20} 0",
        "",
    ]


def test_a_memory_bomb_is_stopped(place: Yard, small: Pen) -> None:
    needs_memory_limit(place)
    result = small.python("keep = []\nwhile True: keep.append(bytearray(2**20))")
    assert result.exit_code != 0
    assert small.status().out_of_memory_kills >= 1
    assert small.answers()


def test_memory_in_many_processes_counts_together(place: Yard, small: Pen) -> None:
    needs_memory_limit(place)
    code = (
        "import os\n"
        "for _ in range(8): os.fork() or (bytearray(40 * 2**20), os.read(0, 1), os._exit(0))\n"
        "for _ in range(8): print(os.wait()[1])\n"
    )
    assert b"9" in small.python(code).stdout
    assert small.status().out_of_memory_kills >= 1


@pytest.mark.parametrize("way", ["inodes", "memfd", "sysv"])
def test_memory_outside_of_processes_counts(place: Yard, small: Pen, way: str) -> None:
    needs_memory_limit(place)
    code = {
        "inodes": "n = 0\nwhile True: open(f'/dev/shm/{n}', 'w').close(); n += 1",
        "memfd": "import os\nwhile True: os.write(os.memfd_create('m'), bytes(2**24))",
        "sysv": (
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
            "while True: ctypes.memset(libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0), 1, 16 << 20)"
        ),
    }[way]
    try:
        assert small.python(code).exit_code != 0
    except BoxGone:
        assert eventually(lambda: small.status().reason == "out_of_memory")
    assert small.status().out_of_memory_kills >= 1


def test_the_boxs_memory_file_systems_are_bounded(small: Pen) -> None:
    for place_ in ("/dev", "/dev/pts", "/proc", "/run/paddock/holes"):
        assert small.run(f"head -c 1M /dev/zero > {place_}/fill").exit_code != 0, place_
    full = small.run("head -c 256M /dev/zero > /dev/shm/fill")
    assert full.exit_code != 0
    assert small.python("import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)").stdout == b"67108864\n"


def test_open_files_are_bounded_per_process(small: Pen) -> None:
    code = "import os\nn = 0\ntry:\n    while True: os.open('/dev/null', 0); n += 1\nexcept OSError: print(n)"
    assert int(small.python(code).stdout) < 256
    raised = small.python("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))")
    assert raised.exit_code != 0


def test_one_file_cannot_outgrow_the_disk_limit(small: Pen) -> None:
    assert small.run("head -c 80M /dev/zero > /workspace/big").exit_code != 0
    assert small.run("truncate -s 1T /workspace/sparse").exit_code != 0
    assert (small.files.workspace / "big").stat().st_size <= 64 * MIB


def test_many_empty_files_count_as_disk_use(place: Yard, small: Pen) -> None:
    """A file system's inodes run out too."""
    before = place.do(place.backend.disk_used(small.record))
    made = small.python("for n in range(5000): open(f'/workspace/{n}', 'w').close()")
    assert made.exit_code == 0
    whole = os.statvfs(place.data)
    share = whole.f_blocks * whole.f_frsize // whole.f_files if whole.f_files else 0
    assert place.do(place.backend.disk_used(small.record)) - before >= 4000 * share


def test_closed_directories_count_as_disk_use(place: Yard, small: Pen) -> None:
    """Also where the host's user is the box's, and so is kept out by the same permission bits."""
    small.output(
        "mkdir /workspace/d && head -c 8M /dev/urandom > /workspace/d/f && sync /workspace/d/f && chmod 0 /workspace/d"
    )
    assert place.do(place.backend.disk_used(small.record)) >= 8 * MIB


def test_output_does_not_fill_the_boxs_log(small: Pen) -> None:
    flood = "yes | head -c 9M; head -c 2M /dev/zero >&2; echo spam > /proc/1/fd/1; echo spam > /dev/console"
    result = small.run(flood)
    assert len(result.stdout) <= 16 * MIB
    small.start("yes | head -c 9M")
    assert small.files.log.stat().st_size < 64 * 1024
    assert small.answers()


def _members(pen: Pen) -> int:
    namespace = processes.pid_namespace(pen.first_process)
    assert namespace is not None
    return len(processes.members(namespace))
