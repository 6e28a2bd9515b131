"""Sandboxes see only their own processes and cannot touch their init process."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends.support import (
    LocalBackendHarness,
    RunningSandbox,
    descends,
    eventually,
    local_backend,
    running,
)

from paddock.model.sandbox import SandboxHealth

PTRACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
def attempt(request):
    done = libc.ptrace(request, 1, None, None)
    return ctypes.get_errno() if done < 0 else 0
print(attempt(16), attempt(0x4206))
local = ctypes.create_string_buffer(8)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
here = Piece(ctypes.addressof(local), 8)
there = Piece(0x400000, 8)
print(libc.process_vm_readv(1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0), ctypes.get_errno())
print(libc.process_vm_writev(1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0), ctypes.get_errno())
fd = os.pidfd_open(1)
print(libc.syscall(438, fd, 0, 0), ctypes.get_errno())
"""

OF_CONTAINERS = sum(1 << capability for capability in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 27, 29, 31))
"""Capabilities in the user namespace of a sandbox in root mode."""


def test_only_own_processes_are_listed(running_sandbox: RunningSandbox) -> None:
    listed = {int(line) for line in running_sandbox.output("ls /proc | grep '^[0-9]'").split()}
    assert 1 in listed
    assert max(listed) < 2000
    assert os.getpid() not in listed or os.getpid() < 2000
    assert (
        str(running_sandbox.data).encode()
        not in running_sandbox.run("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ").stdout
    )


def test_host_processes_cannot_be_signalled(running_sandbox: RunningSandbox) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            code = (
                "import os, sys\n"
                "hit = []\n"
                "for pid in range(2, 200000):\n"
                "    if pid == os.getpid(): continue\n"
                "    try: os.kill(pid, 0); hit.append(pid)\n"
                "    except OSError: pass\n"
                "print(all(os.path.exists(f'/proc/{pid}') for pid in hit), len(hit) < 50)\n"
            )
            assert running_sandbox.python(code).stdout == b"True True\n"
            running_sandbox.run("kill -9 -1")
            assert victim.poll() is None
        finally:
            victim.kill()
    assert running_sandbox.answers()


def test_init_process_cannot_be_killed_or_stopped_from_inside(running_sandbox: RunningSandbox) -> None:
    for name in ("KILL", "STOP", "SEGV", "TSTP", "HUP", "USR1", "ALRM"):
        running_sandbox.run(f"kill -{name} 1")
    assert running_sandbox.status().health is SandboxHealth.RUNNING
    assert running_sandbox.answers()


def test_init_process_secrets_are_unreadable(running_sandbox: RunningSandbox) -> None:
    assert Path(f"/proc/{running_sandbox.first_process}/fd").exists()
    for name in ("mem", "environ", "maps", "auxv", "stack", "syscall", "pagemap", "fd/0", "fdinfo/0", "map_files"):
        assert running_sandbox.run(["cat", f"/proc/1/{name}"]).exit_code != 0, name
    for name in ("root", "cwd", "exe", "ns/pid", "ns/mnt"):
        assert running_sandbox.run(["readlink", f"/proc/1/{name}"]).exit_code != 0, name
    assert running_sandbox.run("ls /proc/1/root/").stdout == b""
    shown = running_sandbox.run("ls -l /proc/1/fd 2>/dev/null").stdout
    assert b"->" not in shown
    assert running_sandbox.root_mode or shown == b""
    assert (
        str(running_sandbox.record["token"]).encode()
        not in running_sandbox.run("cat /proc/*/cmdline /proc/*/environ; env").stdout
    )


def test_init_process_cannot_be_traced_or_read(running_sandbox: RunningSandbox, nested: RunningSandbox) -> None:
    refused = b"1 1\n-1 1\n-1 1\n-1 1\n"
    assert running_sandbox.python(PTRACE).stdout == refused
    inner = nested.run(["unshare", "--user", "--map-root-user", "python3", "-c", PTRACE])
    assert inner.stdout == refused, inner


def test_own_children_can_be_traced(running_sandbox: RunningSandbox) -> None:
    """Debuggers are for the sandbox's own programs."""
    code = (
        "import ctypes, os, signal\n"
        "child = os.fork()\n"
        "if child == 0: signal.pause()\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.ptrace(0x4206, child, None, None))\n"
        "os.kill(child, 9)\n"
    )
    assert running_sandbox.python(code).stdout == b"0\n"


def test_only_init_process_gets_descriptors_to_the_host(running_sandbox: RunningSandbox) -> None:
    """Neither the report that `remove` trusts nor the program filter is open in the sandbox."""
    directory = f"/proc/{running_sandbox.first_process}/fd"
    if not os.access(directory, os.R_OK):
        pytest.skip("the first process hides its descriptors from its own user outside, too")
    links = [os.readlink(path) for name in os.listdir(directory) if os.path.lexists(path := f"{directory}/{name}")]
    assert not [link for link in links if link.endswith("report.jsonl") or "memfd" in link], links
    assert not [link for link in links if str(running_sandbox.data) in link and not link.endswith("/log")], links
    shown = running_sandbox.output("ls -l /proc/self/fd")
    assert "log" not in shown
    assert "socket" not in shown


def test_sandbox_has_no_capabilities_outside(running_sandbox: RunningSandbox) -> None:
    sets = [line.split()[1] for line in running_sandbox.output("grep ^Cap /proc/self/status").splitlines()]
    none, some = "0" * 16, f"{OF_CONTAINERS:016x}"
    assert sets == ([none, some, some, some, none] if running_sandbox.root_mode else [none] * 5)
    for name in ("self", "1"):
        assert "Seccomp:\t2" in running_sandbox.output(f"cat /proc/{name}/status")


def test_sandboxes_have_different_users(running_sandbox: RunningSandbox, neighbour: RunningSandbox) -> None:
    uids = [os.stat(f"/proc/{sandbox.monitor}").st_uid for sandbox in (running_sandbox, neighbour)]
    if os.geteuid() == 0:
        assert len({0, *uids}) == 3
    else:
        assert set(uids) == {os.geteuid()}
    namespaces = [
        {
            os.readlink(f"/proc/{pid}/ns/{kind}")
            for pid in (os.getpid(), running_sandbox.first_process, neighbour.first_process)
        }
        for kind in ("user", "pid", "mnt", "net", "ipc", "uts")
    ]
    assert [len(found) for found in namespaces] == [3] * 6


def test_sandbox_processes_lack_server_environment(
    harness: LocalBackendHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("without root the server and its sandboxes are the same user, who may read its own processes")
    monkeypatch.setenv("PADDOCK_TEST_SECRET", "of-the-server")
    with (
        local_backend(harness.data.parent, harness.image) as fresh,
        fresh.sandbox() as sandbox,
    ):  # Starts a launcher of its own.
        sandbox.start("sleep 60")
        user = int(sandbox.record["uid"])
        found = [Path("/proc", name) for name in os.listdir("/proc") if name.isdigit()]
        owned = [process for process in found if process.is_dir() and process.stat().st_uid == user]
        environments = [(process / "environ").read_bytes() for process in owned]
        assert Path(f"/proc/{sandbox.monitor}") in owned
        assert not [text for text in environments if b"of-the-server" in text]


def test_end_commands_reaches_nested_namespaces(nested: RunningSandbox) -> None:
    """A process must not outlive `end_commands` in a pid namespace it made."""
    nested.start(
        "unshare --user --map-root-user --pid --fork --mount-proc sh -c 'while :; do sleep 0.05; date > /tmp/b; done'"
    )
    eventually(lambda: nested.run("cat /tmp/b").stdout)
    asyncio.run(nested.backend.end_commands(nested.record))
    assert int(nested.output("ls /proc | grep -c '^[0-9]'")) <= 5
    assert nested.answers()


def test_pause_reaches_nested_namespaces(nested: RunningSandbox) -> None:
    nested.start("exec unshare --user --map-root-user --pid --fork sh -c 'while :; do :; done'")
    first = nested.first_process

    def spinning() -> list[int]:
        return [pid for pid in running("while :; do :; done") if descends(pid, first)]

    eventually(lambda: len(spinning()) >= 2)

    def used() -> int:
        return sum(int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11]) for pid in spinning())

    asyncio.run(nested.backend.pause(nested.record))
    try:
        before = used()
        with subprocess.Popen(["sleep", "0.2"]):
            pass
        assert used() == before
    finally:
        asyncio.run(nested.backend.resume(nested.record))
    eventually(lambda: used() > before)
    asyncio.run(nested.backend.end_commands(nested.record))
    assert spinning() == []
