"""Calls into the kernel that a sandbox does not need are refused, whichever way they are made."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from pathlib import Path

import pyseccomp
import pytest
from tests.contract.backends.support import RunningSandbox

CALL = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
answers = {}
for name, number, arguments in json.loads(sys.argv[1]):
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in arguments))
    answers[name] = 0 if done >= 0 else ctypes.get_errno()
print(json.dumps(answers))
"""

NEW_USER = 0x10000000
NAMESPACES = {
    "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": NEW_USER, "pid": 0x20000000,
    "net": 0x40000000,
}  # fmt: skip

HARMLESS = {
    "mount": [0, 0, 0, 0, 0], "umount2": [0, 0], "pivot_root": [0, 0], "chroot": [0], "move_mount": [-1, 0, -1, 0, 0],
    "open_tree": [-1, 0, 0], "fsopen": [0, 0], "fsmount": [-1, 0, 0], "fsconfig": [-1, 0, 0, 0, 0],
    "fspick": [-1, 0, 0],
    "mount_setattr": [-1, 0, 0, 0, 0], "setns": [-1, 0], "unshare": [NEW_USER], "bpf": [0, 0, 0],
    "perf_event_open": [0, 0, -1, -1, 0], "io_uring_setup": [1, 0], "io_uring_enter": [-1, 0, 0, 0, 0, 0],
    "io_uring_register": [-1, 0, 0, 0], "userfaultfd": [1], "init_module": [0, 0, 0], "finit_module": [-1, 0, 0],
    "delete_module": [0, 0], "kexec_load": [0, 0, 0, -1], "kexec_file_load": [-1, -1, 0, 0, -1], "reboot": [0, 0, 0, 0],
    "sethostname": [0, 0], "setdomainname": [0, 0], "clock_settime": [0, 0], "settimeofday": [0, 0], "adjtimex": [0],
    "clock_adjtime": [0, 0], "swapon": [0, 0], "swapoff": [0], "acct": [0], "quotactl": [0, 0, 0, 0],
    "add_key": [0, 0, 0, 0, -2], "request_key": [0, 0, 0, 0], "keyctl": [0, -3, 0], "open_by_handle_at": [-1, 0, 0],
    "fanotify_init": [0, 0], "syslog": [3, 0, 0], "iopl": [3], "ioperm": [0, 1, 1], "vhangup": [],
    "pidfd_getfd": [-1, 0, 0],
    "process_madvise": [-1, 0, 0, 0, 0], "move_pages": [0, 0, 0, 0, 0, 0], "lookup_dcookie": [0, 0, 0],
}  # fmt: skip
"""Calls with arguments that do no harm where they are let through."""

NEW = {"clone3": 435, "openat2": 437, "fchmodat2": 452, "open_tree_attr": 467, "file_setattr": 469}

HIGH_BITS = """
import ctypes, fcntl, os, pty, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
master, slave = pty.openpty()
if os.getsid(0) != os.getpid():
    os.setsid()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
letter = ctypes.c_char(b"x")
for request in (0x5412, 0x541C, 0x5412 | 1 << 32, 0x541C | 1 << 63, 0x5412 | 1 << 47):
    done = libc.syscall(ctypes.c_long(16), slave, ctypes.c_ulong(request), ctypes.byref(letter))
    print(done, ctypes.get_errno())
print(fcntl.ioctl(slave, termios.TIOCGWINSZ, b"12345678") is not None)
"""

OTHER_ABIS = r"""
#include <stdio.h>
#include <unistd.h>
#include <sys/wait.h>
static int ends(void (*act)(void)) {
    pid_t child = fork();
    if (child == 0) { act(); _exit(0); }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
static void i386_getpid(void) { long n = 20; __asm__ volatile("int $0x80" : "+a"(n)); }
static void x32_getpid(void) {
    long n = 0x40000000 + 39;
    __asm__ volatile("syscall" : "+a"(n) : : "rcx", "r11", "memory");
    if (n < 0) _exit(0);
}
int main(void) { printf("%d %d\n", ends(i386_getpid), ends(x32_getpid)); return 0; }
"""


def number(name: str) -> int | None:
    try:
        found = pyseccomp.resolve_syscall(pyseccomp.system_arch(), name)
    except (OSError, ValueError):
        return None
    return int(found) if found >= 0 else None


def numbered(names: list[str]) -> str:
    calls = [(name, number(name), HARMLESS[name]) for name in names]
    return json.dumps([call for call in calls if call[1] is not None])


def test_dangerous_calls_are_refused(running_sandbox: RunningSandbox) -> None:
    result = running_sandbox.python(CALL, numbered(list(HARMLESS)))
    answers = json.loads(result.stdout)
    assert len(answers) > 40
    if running_sandbox.root_mode:
        assert answers.pop("chroot") == errno.EFAULT
    assert {name: answer for name, answer in answers.items() if answer != errno.EPERM} == {}


def test_refused_calls_work_outside_a_sandbox() -> None:
    """The arguments are wrong, so each is told so instead of being refused."""
    names = ["io_uring_setup", "userfaultfd", "keyctl", "add_key", "pidfd_getfd", "fsmount", "move_mount", "setns"]
    command = ["/usr/bin/python3", "-c", CALL, numbered(names)]
    outside = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert errno.ENOSYS not in outside.values()
    assert len([name for name, answer in outside.items() if answer != errno.EPERM]) >= 6


def test_unknown_new_calls_are_not_implemented(running_sandbox: RunningSandbox) -> None:
    calls = [(name, value, [-1, 0, 0, 0, 0]) for name, value in NEW.items()]
    calls += [(f"number {value}", value, [-1, 0, 0, 0, 0]) for value in range(470, 560)]
    answers = json.loads(running_sandbox.python(CALL, json.dumps(calls)).stdout)
    assert set(answers.values()) == {errno.ENOSYS}


@pytest.mark.parametrize("kind", NAMESPACES)
def test_namespaces_cannot_be_created(running_sandbox: RunningSandbox, kind: str) -> None:
    flag = NAMESPACES[kind]
    clone = number("clone")
    calls = [
        ("unshare", number("unshare"), [flag]),
        ("clone", clone, [flag | 17, 0, 0, 0, 0]),
        ("with user", clone, [flag | NEW_USER | 17, 0, 0, 0, 0]),
        ("high bits", clone, [flag | 17 | 1 << 40, 0, 0, 0, 0]),
    ]
    answers = json.loads(running_sandbox.python(CALL, json.dumps(calls)).stdout)
    assert set(answers.values()) == {errno.EPERM}


def test_programs_that_create_namespaces_fail(running_sandbox: RunningSandbox) -> None:
    for command in ("unshare -U true", "unshare -Ur true", "unshare -m true", "bwrap --ro-bind / / true"):
        assert running_sandbox.run(command).exit_code != 0, command


def test_threads_and_child_processes_work(running_sandbox: RunningSandbox) -> None:
    code = (
        "import subprocess, threading\n"
        "thread = threading.Thread(target=subprocess.run, args=(['true'],)); thread.start(); thread.join()\n"
        "print('both')\n"
    )
    assert running_sandbox.python(code).stdout == b"both\n"


def test_image_may_allow_namespaces(nested: RunningSandbox) -> None:
    assert nested.output("unshare --user --map-root-user --pid --fork --mount-proc sh -c 'id -u; echo $$'") == "0\n1\n"


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -o remount,bind,rw /usr && touch /usr/evil",
        "mount -o remount,bind,rw /opt/paddock/inside.pyz",
        "mount -o remount,bind,dev,suid /workspace",
        "umount -l /usr",
        "umount /run/paddock/holes",
        "umount /opt/paddock/inside.pyz",
        "mount -t sysfs none /mnt",
        "mount -t devtmpfs none /mnt",
        "mount -t debugfs none /mnt",
        "mount -t ext4 /dev/vda /mnt",
        "mount -t bpf none /mnt",
        "mount -t securityfs none /mnt",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo b > /proc/sysrq-trigger",
        "dmesg | grep .",
        "hostname evil",
        "nsenter -t 1 -m true",
        "chroot /proc/1/root true",
        "insmod /tmp/x.ko",
        "date -s 2001-01-01",
        "mknod /tmp/disk b 254 0",
    ],
)
def test_inner_namespace_root_stays_in_the_sandbox(nested: RunningSandbox, attempt: str) -> None:
    inner = nested.run(["unshare", "--user", "--map-root-user", "--mount", "--net", "--ipc", "sh", "-c", attempt])
    assert inner.exit_code != 0, (inner.stdout, inner.stderr)
    assert not Path("/usr/evil").exists()


def test_inner_namespace_cannot_change_sandbox_limits(nested: RunningSandbox) -> None:
    """Mountable control groups are below its own, or read-only."""
    limits = {
        path: path.read_text()
        for hierarchy in nested.backend._cgroups.hierarchies
        for name in ("memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us", "cgroup.freeze")
        if (path := hierarchy.path / nested.id / name).exists()
    }
    attempt = (
        "mkdir -p /tmp/g; for kind in cgroup2 'cgroup -o memory' 'cgroup -o pids' 'cgroup -o cpu'; do"
        "  mount -t $kind none /tmp/g 2>/dev/null || continue;"
        "  for f in memory.limit_in_bytes memory.max pids.max cpu.max cpu.cfs_quota_us; do"
        "    for v in max -1 999999999; do echo $v > /tmp/g/$f; done; done;"
        "  echo /bin/sh > /tmp/g/release_agent; echo 1 > /tmp/g/notify_on_release; umount /tmp/g; done"
    )
    nested.run(["unshare", "--user", "--map-root-user", "--mount", "--cgroup", "sh", "-c", attempt])
    assert {path: path.read_text() for path in limits} == limits


def test_control_group_file_systems_are_not_mounted(running_sandbox: RunningSandbox) -> None:
    assert running_sandbox.output("ls -A /sys") == ""
    assert "cgroup" not in running_sandbox.output("cat /proc/mounts")


@pytest.mark.parametrize(
    "path",
    ["kernel/core_pattern", "kernel/hostname", "kernel/modprobe", "kernel/sysrq", "vm/overcommit_memory", "fs/file-max",
     "net/ipv4/ip_forward", "kernel/pid_max", "user/max_user_namespaces"],
)  # fmt: skip
def test_kernel_settings_cannot_be_written(running_sandbox: RunningSandbox, path: str) -> None:
    host = Path("/proc/sys", path)
    before = host.read_text() if host.exists() else None
    assert running_sandbox.run(f"echo 1 > /proc/sys/{path}").exit_code != 0
    assert (host.read_text() if host.exists() else None) == before


def test_clock_cannot_be_set(running_sandbox: RunningSandbox) -> None:
    assert running_sandbox.run("date -s 2001-01-01").exit_code != 0
    assert running_sandbox.run("unshare --time true").exit_code != 0


def test_terminal_injection_is_refused(running_sandbox: RunningSandbox) -> None:
    lines = running_sandbox.python(HIGH_BITS).stdout.decode().splitlines()
    assert lines == [f"-1 {errno.EPERM}"] * 5 + ["True"]


def test_other_system_call_tables_are_refused(running_sandbox: RunningSandbox, tmp_path: Path) -> None:
    """The 32-bit and x32 tables have other numbers, which the filter would misread."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler on this machine")
    (tmp_path / "abis.c").write_text(OTHER_ABIS)
    built = tmp_path / "abis"
    compiled = subprocess.run(["gcc", "-static", "-o", built, tmp_path / "abis.c"], capture_output=True, check=False)
    if compiled.returncode:
        pytest.skip("the C compiler makes no static programs for this machine")
    running_sandbox.write("/workspace/abis", built.read_bytes())
    i386, x32 = running_sandbox.output("/workspace/abis").split()
    assert i386 in ("31", "11")
    assert x32 in ("31", "0")


def test_host_keys_are_not_listed(running_sandbox: RunningSandbox) -> None:
    assert b"_uid.0:" not in running_sandbox.run("cat /proc/keys").stdout
