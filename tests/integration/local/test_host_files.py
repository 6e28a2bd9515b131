"""Nothing on the host's disks can be read or written from a sandbox but what it was given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, local_backend

from paddock.errors import InvalidInput, SandboxStartError
from paddock.model.sandbox import Image, SandboxMount

SETUID_ATTEMPTS = """
import ctypes, os, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
directory = sys.argv[1]
made = []
def attempt(name, act):
    path = f"{directory}/{name}"
    try:
        act(path)
    except OSError:
        pass
    if os.path.exists(path) and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID) and os.path.isfile(path):
        made.append(name)
def plain(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
def raw(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def how(flags, mode):
    return ctypes.byref((ctypes.c_uint64 * 3)(flags, mode, 0))
def unnamed(path):
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o4755)
    raw(265, -100, b"/proc/self/fd/%d" % fd, -100, path.encode(), 0x400)
os.umask(0)
attempt("chmod", lambda p: (plain(p), os.chmod(p, 0o4755)))
attempt("setgid", lambda p: (plain(p), os.chmod(p, 0o2755)))
attempt("fchmod", lambda p: (plain(p), os.fchmod(os.open(p, os.O_WRONLY), 0o4755)))
attempt("fchmodat", lambda p: (plain(p), raw(268, -100, p.encode(), 0o4755)))
attempt("fchmodat2", lambda p: (plain(p), raw(452, -100, p.encode(), 0o4755, 0)))
attempt("chmod-high-bits", lambda p: (plain(p), raw(90, p.encode(), ctypes.c_long(0o4755 | 1 << 40))))
attempt("creat", lambda p: raw(85, p.encode(), 0o4755))
attempt("open", lambda p: raw(2, p.encode(), os.O_CREAT | os.O_WRONLY, 0o4755))
attempt("openat", lambda p: raw(257, -100, p.encode(), os.O_CREAT | os.O_WRONLY, 0o4755))
attempt("openat2", lambda p: raw(437, -100, p.encode(), how(os.O_CREAT | os.O_WRONLY, 0o4755), 24))
attempt("mknod", lambda p: raw(133, p.encode(), stat.S_IFREG | 0o4755, 0))
attempt("mknodat", lambda p: raw(259, -100, p.encode(), stat.S_IFREG | 0o4755, 0))
attempt("tmpfile", unnamed)
print(made)
"""

CAPABILITY_ATTEMPT = """
import os, struct
os.close(os.open("/vol/tool", os.O_CREAT | os.O_WRONLY, 0o755))
for version, more in ((0x02000000, b""), (0x03000000, struct.pack("<I", 0))):
    try:
        value = struct.pack("<IIIII", version | 1, 0xFFFFFFFF, 0, 0x1FF, 0) + more
        os.setxattr("/vol/tool", "security.capability", value)
        print("given")
    except OSError as error:
        print(error.errno)
"""


def test_host_secrets_are_not_in_the_sandbox(running_sandbox: RunningSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's own")
    assert Path("/etc/shadow").exists()
    for path in (
        "/etc/shadow",
        str(secret),
        str(running_sandbox.data),
        str(running_sandbox.files.facts),
        "/root/.ssh",
        "/boot",
        "/sys/kernel",
    ):
        assert running_sandbox.run(["cat", path]).exit_code != 0, path
        assert running_sandbox.run(["ls", "-A", path]).stdout in (b"", f"{path}\n".encode()), path


def test_parent_paths_stay_inside_the_root(running_sandbox: RunningSandbox, tmp_path: Path) -> None:
    (tmp_path / "marked").touch()
    climb = "/" + "../" * 40
    assert running_sandbox.run(["ls", f"{climb}{tmp_path}/marked"]).exit_code != 0
    assert len(set(running_sandbox.output(["stat", "-c", "%d:%i", "/", climb]).split())) == 1


def test_workspace_of_another_sandbox_is_unreachable(
    running_sandbox: RunningSandbox, neighbour: RunningSandbox
) -> None:
    neighbour.write("/workspace/diary", b"private")
    assert (neighbour.files.workspace / "diary").read_bytes() == b"private"
    found = running_sandbox.run(
        "cat /workspace/diary /proc/*/root/workspace/diary /proc/*/cwd/diary; find / -xdev -name diary"
    )
    assert b"private" not in found.stdout
    assert b"diary" not in found.stdout


def test_image_files_cannot_be_changed(running_sandbox: RunningSandbox, image: Image) -> None:
    before = (image.root / "etc/passwd").read_bytes()
    running_sandbox.run("echo evil:x:0:0::/:/bin/sh >> /etc/passwd; rm -rf /etc/ssl; mv /etc/hosts /etc/hosts2")
    assert (image.root / "etc/passwd").read_bytes() == before
    assert (
        running_sandbox.run("touch /usr/evil /usr/bin/python3 /opt/paddock/inside.pyz /run/paddock/holes/x").exit_code
        != 0
    )
    assert not Path("/usr/evil").exists()


@pytest.mark.parametrize(
    "device", ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kvm", "/dev/vda", "/dev/sda", "/dev/fuse"]
)
def test_raw_devices_are_absent(running_sandbox: RunningSandbox, device: str) -> None:
    assert running_sandbox.run(["test", "-e", device]).exit_code == 1


def test_device_nodes_cannot_be_created(running_sandbox: RunningSandbox, nested: RunningSandbox) -> None:
    code = (
        "import os, stat\n"
        "for kind, major, minor in ((stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 1, 1)):\n"
        "    for directory in ('/workspace', '/tmp', '/dev/shm'):\n"
        "        try: os.mknod(f'{directory}/node', kind | 0o666, os.makedev(major, minor)); print('made')\n"
        "        except PermissionError: pass\n"
    )
    assert running_sandbox.python(code).stdout == b""
    inner = nested.run(["unshare", "--user", "--map-root-user", "--mount", "python3", "-c", code])
    assert (inner.exit_code, inner.stdout) == (0, b"")


def test_device_nodes_of_a_hostile_image_do_not_work(
    harness: LocalBackendHarness, image: Image, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make an image with a device in it")
    root = tmp_path / "image"
    subprocess.run(["cp", "-a", image.root, root], check=True)
    os.mknod(root / "zero", 0o020666, os.makedev(1, 5))
    with open(root / "zero", "rb") as device:
        assert device.read(1) == b"\0"
    with harness.sandbox(image=image.model_copy(update={"root": root})) as running_sandbox:
        refused = running_sandbox.run("head -c 1 /zero")
        assert refused.exit_code != 0
        assert b"Permission denied" in refused.stderr


def test_symlinks_of_hostile_image_stay_inside(harness: LocalBackendHarness, image: Image, tmp_path: Path) -> None:
    """An image in which every mount point is a link to the host's /etc."""
    root = tmp_path / "image"
    subprocess.run(["cp", "-a", image.root, root], check=True)
    target = tmp_path / "victim"
    target.mkdir()
    before = sorted(os.listdir("/etc"))
    links = {"workspace": "/etc", "run/paddock": "/srv", "opt/paddock": "../../../../../mnt", "data": "/var/../etc"}
    for name, destination in links.items():
        (root / name).symlink_to(destination)
    with harness.sandbox(
        image=image.model_copy(update={"root": root}), mounts=(SandboxMount(source=target, target="/data/volume"),)
    ) as running_sandbox:
        running_sandbox.output("echo mine > /workspace/mine; echo sandbox > /data/volume/file")
        assert (target / "file").read_text() == "sandbox\n"
    assert sorted(os.listdir("/etc")) == before
    assert os.listdir(target) == ["file"]


def test_files_written_at_start_do_not_follow_image_symlinks(
    harness: LocalBackendHarness, image: Image, tmp_path: Path
) -> None:
    root = tmp_path / "image"
    subprocess.run(["cp", "-a", image.root, root], check=True)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (root / "etc/hosts").unlink()
    (root / "etc/hosts").symlink_to(victim)
    (root / "etc/hostname").unlink()
    (root / "etc/hostname").symlink_to("/proc/self/root" + str(victim))
    with harness.sandbox(image=image.model_copy(update={"root": root})) as running_sandbox:
        assert "localhost" in running_sandbox.output("cat /etc/hosts")
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("target", ["workspace", "/no/such/place", "/proc/self/root/tmp", "/etc/hosts"])
def test_image_with_dangling_mount_point_fails_cleanly(
    harness: LocalBackendHarness, image: Image, tmp_path: Path, target: str
) -> None:
    root = tmp_path / "image"
    subprocess.run(["cp", "-a", image.root, root], check=True)
    (root / "workspace").symlink_to(target)
    before = harness.do(harness.backend.leftovers())
    with pytest.raises(SandboxStartError):
        harness.start(image=image.model_copy(update={"root": root}))
    assert harness.do(harness.backend.leftovers()) == before


def test_symlinks_in_volume_resolve_inside_the_sandbox(harness: LocalBackendHarness, volume: Path) -> None:
    with harness.sandbox(mounts=(SandboxMount(source=volume, target="/vol"),)) as running_sandbox:
        running_sandbox.output(
            "ln -s /etc/shadow /vol/shadow; ln -s / /vol/root; ln -s /workspace/x /vol/x; echo in > /workspace/x"
        )
        assert running_sandbox.run("cat /vol/shadow").exit_code != 0
        assert running_sandbox.output("cat /vol/x") == "in\n"
        assert running_sandbox.output("ls /vol/root/workspace") == "x\n"
    with harness.sandbox(
        mounts=(SandboxMount(source=volume, target="/vol"), SandboxMount(source=volume, target="/vol/root/sub"))
    ) as running_sandbox:
        assert running_sandbox.output("ls /sub").split() == ["root", "shadow", "x"]
    assert not Path("/sub").exists()


def test_removal_does_not_follow_symlinks(harness: LocalBackendHarness, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    with harness.sandbox() as running_sandbox:
        running_sandbox.output(
            f"ln -s {kept} /workspace/out; ln -s {kept} $HOME/out; mkdir /workspace/d; ln -s {kept}/file /workspace/d/f"
        )
        harness.do(harness.backend.snapshot(running_sandbox.record, "links"))
    with harness.sandbox(snapshot="links") as copy:
        assert copy.output("readlink /workspace/out").strip() == str(kept)
    harness.do(harness.backend.delete_snapshot("links"))
    assert (kept / "file").read_text() == "kept"
    assert (kept / "file").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("where", ["/workspace", "/vol"])
def test_set_id_bits_cannot_be_set(harness: LocalBackendHarness, volume: Path, where: str) -> None:
    """A set-uid file on a mounted directory would belong to the directory's owner outside: root's, if root's."""
    with harness.sandbox(mounts=(SandboxMount(source=volume, target="/vol"),)) as running_sandbox:
        result = running_sandbox.python(SETUID_ATTEMPTS, where)
        assert (result.exit_code, result.stdout) == (0, b"[]\n"), result
    assert [path for path in volume.iterdir() if path.stat().st_mode & 0o6000] == []


def test_set_id_attempts_succeed_without_the_filter(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/usr/bin/python3", "-c", SETUID_ATTEMPTS, tmp_path], capture_output=True, text=True, check=True
    )
    assert "tmpfile" in done.stdout
    assert "openat" in done.stdout


def test_archive_cannot_create_set_id_files(running_sandbox: RunningSandbox) -> None:
    code = (
        "import io, tarfile\n"
        "with tarfile.open('/tmp/t.tar', 'w') as tar:\n"
        "    entry = tarfile.TarInfo('set'); entry.mode = 0o4755; tar.addfile(entry)\n"
    )
    assert running_sandbox.python(code).exit_code == 0
    running_sandbox.run("cd /workspace && tar -xpf /tmp/t.tar; cp -p /usr/bin/su su; install -m 4755 /usr/bin/su su2")
    made = running_sandbox.output("find /workspace /tmp /dev/shm -perm /6000").split()
    assert bool(made) == running_sandbox.root_mode
    for path in running_sandbox.files.directory.rglob("su"):
        assert path.stat().st_uid != 0, "a set-uid file outside belongs to root"


def test_set_uid_programs_gain_nothing(running_sandbox: RunningSandbox) -> None:
    programs = [path for path in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd") if os.path.exists(path)]
    assert any(os.stat(path).st_mode & 0o4000 for path in programs)
    assert running_sandbox.root_mode or running_sandbox.run("su -c id root </dev/null").exit_code != 0
    assert running_sandbox.run("mount -t tmpfs none /mnt").exit_code != 0
    flag = 0 if running_sandbox.root_mode else 1
    assert f"NoNewPrivs:\t{flag}" in running_sandbox.output("cat /proc/self/status")


def test_inner_namespace_root_cannot_add_file_capabilities(
    harness: LocalBackendHarness, image: Image, volume: Path
) -> None:
    """On an idmapped mount of root's directory they would be valid outside."""
    with harness.sandbox(
        image=image.model_copy(update={"nested_namespaces": True}), mounts=(SandboxMount(source=volume, target="/vol"),)
    ) as running_sandbox:
        inner = running_sandbox.run(["unshare", "--user", "--map-root-user", "python3", "-c", CAPABILITY_ATTEMPT])
        assert inner.exit_code == 0, inner
        assert b"given" not in inner.stdout
    assert (volume / "tool").exists()
    assert os.listxattr(volume / "tool") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"A": "x\0--bind\0/\0/mnt"}},
        {"env": {"A\0--bind\0/\0/mnt\0--setenv\0B": "x"}},
        {"hostname": "box\0--bind\0/\0/mnt"},
    ],
    ids=["value", "name", "hostname"],
)
def test_text_cannot_become_bubblewrap_argument(harness: LocalBackendHarness, changes: dict[str, object]) -> None:
    """A NUL ends an argument; what follows it would be a mount of the host's root."""
    before = harness.do(harness.backend.leftovers())
    with pytest.raises(InvalidInput):
        harness.start(**changes)
    assert harness.do(harness.backend.leftovers()) == before


@pytest.mark.parametrize("name", ["a:b,c=d e", "ä" * 60 + "x" * 100, "line\nbreak", "back\\slash"])
def test_data_directory_may_have_any_name(image: Image, tmp_path: Path, name: str) -> None:
    with local_backend(tmp_path / name, image) as harness, harness.sandbox() as running_sandbox:
        assert running_sandbox.output("echo in > /workspace/f; cat /workspace/f") == "in\n"
