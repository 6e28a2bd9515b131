"""A sandbox that takes all it can get takes it from itself."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, eventually

from paddock.errors import NotFound, SandboxGone
from paddock.model.sandbox import SandboxHealth, SandboxLimits
from paddock.sandbox.base import BackendFeature
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.local import process_control

MIB = 2**20
SMALL = SandboxLimits(memory=128 * MIB, pids=64, files=256, disk=64 * MIB, cpu=1)


@pytest.fixture
def small(harness: LocalBackendHarness) -> Iterator[RunningSandbox]:
    with harness.sandbox(limits=SMALL) as sandbox:
        yield sandbox


def needs_memory_limit(harness: LocalBackendHarness) -> None:
    if BackendFeature.MEMORY_LIMIT not in harness.backend.features:
        pytest.skip("no memory control group on this machine for this user")


def test_fork_bomb_affects_only_its_sandbox(harness: LocalBackendHarness, neighbour: RunningSandbox) -> None:
    running_sandbox = harness.start(limits=SMALL)
    running_sandbox.start("bomb() { bomb | bomb & }; bomb; while :; do bomb; done")
    host = len(os.listdir("/proc"))
    begin = time.monotonic()
    assert neighbour.answers()
    assert time.monotonic() - begin < 3
    assert len(os.listdir("/proc")) < host + 200
    begin = time.monotonic()
    harness.remove(running_sandbox)
    assert time.monotonic() - begin < 3
    assert running_sandbox.status().health is SandboxHealth.GONE


FORKING_FOREVER = """
import os, signal
while True:
    try:
        if os.fork() == 0: signal.pause()
    except OSError: pass
"""


def test_daemon_answers_while_programs_take_every_free_process(harness: LocalBackendHarness) -> None:
    async def answer_many_clients(running_sandbox: RunningSandbox) -> None:
        address = harness.backend.daemon_address(running_sandbox.record)
        async with AsyncExitStack() as stack:  # Each client keeps its connection open.
            clients = [await stack.enter_async_context(DaemonClient(address)) for _ in range(12)]
            for client in (*clients, *clients):
                assert (await client.state())["running_commands"] == 1
            refused = await clients[0].run("true")
            assert refused.exit_code == 126 and "temporarily unavailable" in refused.reason
            with pytest.raises(NotFound):
                await clients[1].interrupt("missing")

    with harness.sandbox(limits=SMALL) as running_sandbox:
        running_sandbox.start(shlex.join(["/usr/bin/python3", "-I", "-c", FORKING_FOREVER]))
        eventually(lambda: _members(running_sandbox) >= 40)
        asyncio.run(answer_many_clients(running_sandbox))
        asyncio.run(harness.backend.end_commands(running_sandbox.record))
        assert running_sandbox.answers()


def test_sandbox_without_free_processes_can_be_ended(harness: LocalBackendHarness) -> None:
    with harness.sandbox(limits=SMALL) as running_sandbox:
        running_sandbox.start("for i in $(seq 200); do sleep 600 & done; wait")
        eventually(lambda: _members(running_sandbox) >= 40)
        asyncio.run(harness.backend.end_commands(running_sandbox.record))
        assert running_sandbox.answers()


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


def test_disk_space_is_used_only_by_writes(running_sandbox: RunningSandbox) -> None:
    """Disk use is measured, so preallocation, which is faster than measuring, is refused."""
    refused = f"{errno.EOPNOTSUPP}"
    assert running_sandbox.python(PREALLOCATING).stdout.decode().split("\n") == [
        f"[{', '.join([refused] * 6)}]",
        *[refused] * 3,
        "0 0",
        f"{2**20} 0",
        "",
    ]


def test_memory_bomb_is_stopped(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    needs_memory_limit(harness)
    result = small.python("keep = []\nwhile True: keep.append(bytearray(2**20))")
    assert result.exit_code != 0
    assert small.status().out_of_memory_kills >= 1
    assert small.answers()


def test_memory_of_all_processes_is_summed(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    needs_memory_limit(harness)
    code = (
        "import os\n"
        "for _ in range(8): os.fork() or (bytearray(40 * 2**20), os.read(0, 1), os._exit(0))\n"
        "for _ in range(8): print(os.wait()[1])\n"
    )
    assert b"9" in small.python(code).stdout
    assert small.status().out_of_memory_kills >= 1


@pytest.mark.parametrize("method", ["inodes", "memfd", "sysv"])
def test_memory_outside_processes_is_counted(harness: LocalBackendHarness, small: RunningSandbox, method: str) -> None:
    needs_memory_limit(harness)
    code = {
        "inodes": "n = 0\nwhile True: open(f'/dev/shm/{n}', 'w').close(); n += 1",
        "memfd": "import os\nwhile True: os.write(os.memfd_create('m'), bytes(2**24))",
        "sysv": (
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
            "while True: ctypes.memset(libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0), 1, 16 << 20)"
        ),
    }[method]
    try:
        assert small.python(code).exit_code != 0
    except SandboxGone:
        assert eventually(lambda: small.status().reason == "out_of_memory")
    assert small.status().out_of_memory_kills >= 1


SOCKET_PAIRS = """
import os, socket
pairs = []
def fill():
    while True:
        pair = socket.socketpair()
        pairs.append(pair)
        pair[0].setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            for end in pair: end.setsockopt(socket.SOL_SOCKET, option, 2**20)
        try:
            while True: pair[0].send(bytes(2**16))
        except BlockingIOError: pass
for _ in range(30):
    if os.fork() == 0: break
while True:
    try: fill()
    except OSError: pass
"""


def test_daemon_survives_memory_in_sockets(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    needs_memory_limit(harness)
    small.start(f"exec python3 -c '{SOCKET_PAIRS}'")
    assert eventually(lambda: small.status().out_of_memory_kills >= 1)
    assert small.answers()
    assert small.status().health is SandboxHealth.RUNNING


def test_memory_file_systems_are_bounded(small: RunningSandbox) -> None:
    for path in ("/dev", "/dev/pts", "/proc", "/run/paddock/holes"):
        assert small.run(f"head -c 1M /dev/zero > {path}/fill").exit_code != 0, path
    full = small.run("head -c 256M /dev/zero > /dev/shm/fill")
    assert full.exit_code != 0
    assert small.python("import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)").stdout == b"67108864\n"


def test_open_files_are_bounded_per_process(small: RunningSandbox) -> None:
    code = "import os\nn = 0\ntry:\n    while True: os.open('/dev/null', 0); n += 1\nexcept OSError: print(n)"
    assert int(small.python(code).stdout) < 256
    raised = small.python("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))")
    assert raised.exit_code != 0


def test_one_file_cannot_outgrow_the_disk_limit(small: RunningSandbox) -> None:
    assert small.run("head -c 80M /dev/zero > /workspace/big").exit_code != 0
    assert small.run("truncate -s 1T /workspace/sparse").exit_code != 0
    assert (small.files.workspace / "big").stat().st_size <= 64 * MIB


def test_many_empty_files_count_as_disk_use(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    """A file system's inodes run out too."""
    before = harness.do(harness.backend.disk_used(small.record))
    made = small.python("for n in range(5000): open(f'/workspace/{n}', 'w').close()")
    assert made.exit_code == 0
    file_system = os.statvfs(harness.data)
    share = file_system.f_blocks * file_system.f_frsize // file_system.f_files if file_system.f_files else 0
    assert harness.do(harness.backend.disk_used(small.record)) - before >= 4000 * share


HOLDING = """
import mmap, os, socket, sys, time
def unlinked(directory, method):
    if method == "tmpfile": return os.open(directory, os.O_TMPFILE | os.O_RDWR)
    path = directory + "/held"
    held = os.open(path, os.O_CREAT | os.O_RDWR)
    os.unlink(path)
    return held
directory, method = sys.argv[1:]
held = unlinked(directory, method)
for _ in range(8): os.write(held, bytes(range(256)) * 4096)
if method == "mapped":
    mapped = mmap.mmap(held, 4096)
    os.close(held)
elif method == "sent":
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [held])
    os.close(held)
elif method == "sent before it is accepted":
    listener, client = (socket.socket(socket.AF_UNIX) for _ in range(2))
    listener.bind("\\0waiting"); listener.listen()
    client.connect("\\0waiting")
    socket.send_fds(client, [b"x"], [held])
    os.close(held)
elif method == "forked" and os.fork(): time.sleep(600)
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("directory", ["/workspace", "/var/tmp"])
@pytest.mark.parametrize("method", ["tmpfile", "unlinked", "mapped", "forked"])
def test_open_files_without_a_name_count_as_disk_use(
    harness: LocalBackendHarness, small: RunningSandbox, directory: str, method: str
) -> None:
    before = harness.do(harness.backend.disk_used(small.record))
    hold(small, directory, method)
    found = harness.do(harness.backend.open_deleted_files(small.record))
    if method == "mapped" and os.geteuid() != 0:
        assert found.may_hide_more  # Only root may look at mapped files.
        return
    assert not found.may_hide_more
    assert 8 * MIB <= found.size < 9 * MIB
    assert 8 * MIB <= harness.do(harness.backend.disk_used(small.record)) - before < 9 * MIB
    asyncio.run(harness.backend.end_commands(small.record))
    eventually(lambda: harness.do(harness.backend.open_deleted_files(small.record)).size == 0)


@pytest.mark.parametrize("method", ["sent", "sent before it is accepted"])
def test_descriptors_in_transit_are_counted(harness: LocalBackendHarness, small: RunningSandbox, method: str) -> None:
    assert not harness.do(harness.backend.open_deleted_files(small.record)).may_hide_more
    hold(small, "/workspace", method)
    assert harness.do(harness.backend.open_deleted_files(small.record)).may_hide_more


def test_files_in_memory_do_not_count_as_disk_use(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    code = (
        "import os, time; m = os.memfd_create('m'); os.write(m, bytes(2**23)); print('held', flush=True); time.sleep(9)"
    )
    small.start(f'exec python3 -c "{code}"')
    hold(small, "/dev/shm", "unlinked")
    assert harness.do(harness.backend.open_deleted_files(small.record)).size == 0


def hold(running_sandbox: RunningSandbox, directory: str, method: str) -> None:
    """Have a program hold a file of 8 MiB that has no name."""
    command = ["/usr/bin/python3", "-I", "-c", HOLDING, directory, method]
    running_sandbox.start(f"exec {shlex.join(command)} > /workspace/out")
    out = running_sandbox.files.workspace / "out"
    eventually(lambda: out.exists() and out.read_text() == "held\n")


def test_closed_directories_count_as_disk_use(harness: LocalBackendHarness, small: RunningSandbox) -> None:
    """Also where the host's user is the sandbox's, and so is kept out by the same permission bits."""
    small.output(
        "mkdir /workspace/d && head -c 8M /dev/urandom > /workspace/d/f && sync /workspace/d/f && chmod 0 /workspace/d"
    )
    assert harness.do(harness.backend.disk_used(small.record)) >= 8 * MIB


def test_output_does_not_fill_sandbox_log(small: RunningSandbox) -> None:
    flood = "yes | head -c 9M; head -c 2M /dev/zero >&2; echo spam > /proc/1/fd/1; echo spam > /dev/console"
    result = small.run(flood)
    assert len(result.stdout) <= 16 * MIB
    small.start("yes | head -c 9M")
    assert small.files.log.stat().st_size < 64 * 1024
    assert small.answers()


def _members(running_sandbox: RunningSandbox) -> int:
    namespace = process_control.pid_namespace(running_sandbox.first_process)
    assert namespace is not None
    return len(process_control.namespace_members(namespace))
