"""Root mode: root and other users inside, without power outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends.support import (
    LocalBackendHarness,
    NoOrdinaryUserError,
    RunningSandbox,
    host_image,
    local_backend,
    run_as_ordinary_user,
)

from paddock.errors import InvalidInput, SandboxStartError, Unavailable
from paddock.model.sandbox import Image, SandboxMount
from paddock.sandbox.local import launcher_client
from paddock.sandbox.local.root_mode import ID_COUNT
from paddock.sandbox.local.subordinate_ids import find_subordinate_ids

AGENT = 1000
IS_ROOT = os.geteuid() == 0
needs_ids = pytest.mark.skipif(
    not IS_ROOT and find_subordinate_ids() is None, reason="without subordinate ids there is one id inside"
)
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only for a server run by root")

POSTINST = """#!/bin/sh
set -e
useradd --system --user-group --no-create-home --shell /usr/sbin/nologin greeter
chown greeter:greeter /opt/greeter/state
chmod 4755 /opt/greeter/id
"""
PREPARE_DPKG = "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates && touch /var/lib/dpkg/status /var/lib/dpkg/available"
PAM = "echo 'auth sufficient pam_rootok.so\naccount required pam_permit.so\nsession required pam_permit.so'"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return host_image(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def rooted(harness: LocalBackendHarness) -> Iterator[RunningSandbox]:
    with harness.sandbox(user="root") as sandbox:
        yield sandbox


def test_commands_run_as_root_with_roots_home(rooted: RunningSandbox) -> None:
    assert rooted.output('echo "$(id -un) $HOME $USER $SHELL" && touch ~/file') == "root /root root /bin/bash\n"


@needs_ids
def test_files_of_inner_users_belong_to_high_ids_outside(rooted: RunningSandbox) -> None:
    rooted.output("cd /workspace && touch roots others && chown 33:44 others && mkdir -p /srv/x && chown 65535 /srv/x")
    found = {name: (rooted.files.workspace / name).stat() for name in ("roots", "others")}
    assert (found["roots"].st_uid, found["roots"].st_gid) == (host_id(rooted, 0), host_id(rooted, 0))
    assert (found["others"].st_uid, found["others"].st_gid) == (host_id(rooted, 33), host_id(rooted, 44))
    assert (rooted.files.upper / "srv/x").stat().st_uid == host_id(rooted, ID_COUNT - 1)
    assert not IS_ROOT or host_id(rooted, 0) >= rooted.backend._settings.uid_base
    assert rooted.run("chown 65536 /srv/x").exit_code != 0


@needs_root
def test_sandboxes_have_different_ranges(rooted: RunningSandbox, harness: LocalBackendHarness) -> None:
    with harness.sandbox(user="root") as other, harness.sandbox() as ordinary:
        assert abs(other.record["uid"] - rooted.record["uid"]) >= ID_COUNT
        assert ordinary.record["uid"] < rooted.backend._settings.uid_base + rooted.backend._settings.uid_count


@needs_root
def test_ranges_are_limited_and_given_back(image: Image, tmp_path: Path) -> None:
    with local_backend(tmp_path, image, uid_ranges=1) as harness:
        with harness.sandbox(user="root"), pytest.raises(Unavailable, match=r"local\.uid_ranges"):
            harness.start(user="root")
        with harness.sandbox(user="root") as again:
            assert again.answers()


@needs_ids
def test_commands_can_run_as_other_users(rooted: RunningSandbox) -> None:
    assert rooted.output("id -u; id -g; echo $HOME; touch /tmp/agents", user=AGENT) == "1000\n1000\n/home/agent\n"
    assert rooted.output("id -un", user="agent") == "agent\n"
    assert rooted.output("id -G; id -u", user=4711) == "4711\n4711\n"
    assert rooted.run("touch /etc/agents", user=AGENT).exit_code != 0
    assert rooted.output("stat -c %U /tmp/agents") == "agent\n"
    assert set(rooted.output("grep ^CapEff /proc/self/status", user=AGENT).split()[1]) == {"0"}


@needs_ids
def test_package_with_a_user_and_a_set_uid_program_can_be_installed(
    harness: LocalBackendHarness, tmp_path: Path
) -> None:
    package = build_package(tmp_path)
    with harness.sandbox(user="root") as sandbox:
        sandbox.write("/tmp/greeter.deb", package.read_bytes())
        sandbox.output(f"{PREPARE_DPKG} && dpkg -i /tmp/greeter.deb")
        assert sandbox.output("stat -c '%U %G' /opt/greeter/state") == "greeter greeter\n"
        assert sandbox.output("stat -c '%U %a' /opt/greeter/id") == "root 4755\n"
        assert sandbox.output("/opt/greeter/id -u; /opt/greeter/id -ru", user="greeter").split()[0] == "0"
        assert (sandbox.files.upper / "opt/greeter/id").stat().st_uid == host_id(sandbox, 0)


@needs_ids
def test_useradd_and_su_work(rooted: RunningSandbox) -> None:
    rooted.output(f"mkdir -p /etc/pam.d && {PAM} > /etc/pam.d/su && cp /etc/pam.d/su /etc/pam.d/useradd")
    rooted.output("touch /etc/shadow && useradd --create-home --shell /bin/sh worker")
    assert rooted.output("su worker -c 'id -un; cd && touch mine && stat -c %U mine'") == "worker\nworker\n"
    assert rooted.run("touch /root/secret && chmod 700 /root && su worker -c 'cat /root/secret'").exit_code != 0


@needs_ids
def test_set_uid_programs_work_inside_and_give_nothing_outside(rooted: RunningSandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    rooted.output("install -m 4755 /usr/bin/id /opt/id && install -m 4755 /usr/bin/grep /opt/grep")
    assert rooted.output("/opt/id -u", user=AGENT) == "0\n"
    assert rooted.output("/opt/grep ^CapEff /proc/self/status", user=AGENT).split()[1] == "00000000a80405fb"
    assert rooted.run(["/opt/grep", "-r", "host", str(secret), "/etc/shadow"], user=AGENT).stdout == b""
    outside = rooted.files.upper / "opt/id"
    assert outside.stat().st_mode & 0o4000
    assert outside.stat().st_uid == host_id(rooted, 0)
    for directory in outside.parents:
        if directory == rooted.data:
            break
    assert directory.stat().st_mode & 0o077 == 0, "other users of the host could run it"


@needs_ids
def test_file_capabilities_are_valid_only_inside(rooted: RunningSandbox) -> None:
    if rooted.run("command -v setcap").exit_code != 0:
        pytest.skip("this machine has no setcap")
    rooted.output("cp /usr/bin/grep /opt/capable && setcap cap_chown+ep /opt/capable")
    assert rooted.output("/opt/capable ^CapEff /proc/self/status", user=AGENT).split()[1] == f"{1:016x}"
    attribute = os.getxattr(rooted.files.upper / "opt/capable", "security.capability")
    assert int.from_bytes(attribute[-4:], "little") == host_id(rooted, 0), "valid in the host's namespace"


@needs_root
def test_hosts_files_only_for_root_stay_closed(harness: LocalBackendHarness, image: Image, tmp_path: Path) -> None:
    """The `host` image mounts the host's /usr, which may have such files."""
    (tmp_path / "secret").write_text("private")
    tmp_path.chmod(0o755)
    (tmp_path / "secret").chmod(0o600)
    bind = SandboxMount(source=tmp_path, target="/usr/local", read_only=True)
    with harness.sandbox(user="root", image=image.model_copy(update={"binds": (*image.binds, bind)})) as sandbox:
        assert sandbox.output("ls /usr/local") == "secret\n"
        assert sandbox.run("cat /usr/local/secret").exit_code != 0


def test_kernel_without_mapped_layers_is_a_clear_error(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(launcher_client.LAUNCHER_PROGRAM).read_text()
    mount = "root = mount_overlay(plan, image, below, flags=MS_NODEV)"
    assert program.count(mount) == 1
    older = tmp_path / "launcher_process.py"
    older.write_text(program.replace(mount, 'raise OSError(22, "Invalid argument")'))
    monkeypatch.setattr(launcher_client, "LAUNCHER_PROGRAM", str(older))
    with local_backend(tmp_path, image) as harness, pytest.raises(SandboxStartError, match=r"Linux 5\.19"):
        harness.start(user="root")


def test_chroot_works(rooted: RunningSandbox) -> None:
    rooted.output("mkdir -p /opt/tree/inner")
    assert rooted.python("import os; os.chroot('/opt/tree'); print(os.listdir('/'))").stdout == b"['inner']\n"


@pytest.mark.parametrize(
    "attempt",
    [
        "mknod /tmp/disk b 254 0",
        "mknod /tmp/disk b 8 0",
        "mknod /workspace/mem c 1 1",
        "mknod /dev/shm/null c 1 3",
        "mount -t tmpfs none /mnt",
        "mount --bind /usr /mnt",
        "mount -o remount,rw /usr",
        "mount -o remount,rw /run/paddock/holes",
        "umount -l /usr",
        "umount /proc",
        "insmod /tmp/module.ko",
        "modprobe dummy",
        "unshare -m true",
        "unshare -U true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "hostname evil",
        "date -s 2001-01-01",
        "dmesg",
        "truncate -s 1M /tmp/swap; swapon /tmp/swap",
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo b > /proc/sysrq-trigger",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 9 > /proc/sys/user/max_user_namespaces",
        "echo 100 > /proc/sys/kernel/pid_max",
        "chmod 666 /dev/null || chown 0 /dev/null",
        "touch /usr/evil",
        "touch /opt/paddock/inside.pyz",
        "cat /proc/kcore | head -c 1 | grep -q .",
        "cat /proc/kmsg",
    ],
)
def test_power_over_the_host_is_refused(rooted: RunningSandbox, attempt: str) -> None:
    refused = rooted.run(attempt)
    assert refused.exit_code != 0, (refused.stdout, refused.stderr)


CHANGE_LINK = """
import os, socket, struct, sys
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
for kind, body in (
    (16, struct.pack("=BxHiII", 0, 0, 1, 0, 1)),
    (20, struct.pack("=4BI", 2, 32, 0, 254, 1) + struct.pack("=HH4B", 8, 2, 10, 0, 0, 1)),
    (24, struct.pack("=8BI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1)),
):
    netlink.send(struct.pack("=IHHII", 16 + len(body), kind, 0x405, 0, 0) + body)
    print(-struct.unpack_from("=16xi", netlink.recv(4096))[0])
"""


def test_network_cannot_be_changed(rooted: RunningSandbox) -> None:
    assert rooted.python(CHANGE_LINK).stdout == b"1\n1\n1\n"
    assert b"PermissionError" in rooted.python("import socket; socket.socket(2, 3, 1)").stderr


def test_daemon_is_protected_from_root_inside(rooted: RunningSandbox) -> None:
    for name in ("mem", "environ", "maps", "fd/0", "root", "cwd", "exe", "ns/user"):
        assert rooted.run(f"cat /proc/1/{name} || readlink /proc/1/{name}").exit_code != 0, name
    rooted.run("kill -9 1; kill -STOP 1; echo 0 > /proc/1/clear_refs; echo 1000 > /proc/1/oom_score_adj")
    assert str(rooted.record["token"]).encode() not in rooted.run("cat /proc/*/environ /proc/*/cmdline").stdout
    assert rooted.answers()


def test_read_only_mount_stays_read_only(harness: LocalBackendHarness, volume: Path) -> None:
    (volume / "file").write_text("kept")
    mount = SandboxMount(source=volume, target="/vol", read_only=True)
    with harness.sandbox(user="root", mounts=(mount,)) as sandbox:
        sandbox.run("echo x > /vol/file; chmod 777 /vol/file; chown 5 /vol/file; rm /vol/file; touch /vol/new")
        assert sandbox.output("cat /vol/file") == "kept"
    assert os.listdir(volume) == ["file"]


def test_files_in_writable_mount_belong_to_its_owner(harness: LocalBackendHarness, volume: Path) -> None:
    """Files of other owners are not in reach, and nothing in it becomes a way to the owner's rights."""
    other = volume / "others"
    other.write_text("private")
    other.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(other, 12345, 12345)
    mount = SandboxMount(source=volume, target="/vol")
    with harness.sandbox(user="root", mounts=(mount,)) as sandbox:
        sandbox.output("echo mine > /vol/mine && cp /usr/bin/id /vol/id && cp /usr/bin/id /opt/id")
        for attempt in ("chmod 4755 /vol/id", "chmod 2755 /vol/id", "install -m 4755 /usr/bin/id /vol/id2"):
            assert sandbox.run(attempt).exit_code != 0, attempt
        sandbox.run("setcap cap_chown+ep /vol/id; setfattr -n user.x -v y /vol/id; mknod /vol/disk b 8 0")
        if os.geteuid() == 0:
            assert sandbox.run("cat /vol/others").stdout == b""
            assert sandbox.run("chown 0 /vol/others || rm -f /vol/others/x").exit_code in (0, 1)
            assert sandbox.run("chown 33 /vol/mine").exit_code != 0
    owner = volume.stat().st_uid
    assert (volume / "mine").stat().st_uid == owner
    assert other.stat().st_uid == (12345 if os.geteuid() == 0 else owner)
    assert [path for path in volume.iterdir() if path.stat().st_mode & 0o6000] == []
    assert os.listxattr(volume / "id") == []
    assert not (volume / "disk").exists()


@needs_ids
def test_snapshot_keeps_all_owners_and_set_uid_programs(harness: LocalBackendHarness) -> None:
    make = "cd /opt && touch a && chown 33:44 a && install -m 4755 /usr/bin/id id && mkdir d && chown 1000:1000 d"
    show = "stat -c '%n %u:%g %a' /opt/a /opt/id /opt/d /workspace/w"
    with harness.sandbox(user="root") as first:
        first.output(f"{make} && touch /workspace/w && chown 5 /workspace/w")
        shown = first.output(show)
        harness.do(harness.backend.snapshot(first.record, "owners"))
        with harness.sandbox(user="root", snapshot="owners") as second:
            assert not IS_ROOT or second.record["uid"] != first.record["uid"]
            assert second.output(show) == shown
            assert second.output("/opt/id -u", user=AGENT) == "0\n"
            assert (second.files.upper / "opt/a").stat().st_uid == host_id(second, 33)
    harness.do(harness.backend.delete_snapshot("owners"))


@needs_root
def test_snapshot_of_ordinary_sandbox_can_start_in_root_mode(harness: LocalBackendHarness) -> None:
    with harness.sandbox() as ordinary:
        ordinary.output("echo x > ~/agents && touch /workspace/w")
        harness.do(harness.backend.snapshot(ordinary.record, "ordinary"))
    with harness.sandbox(user="root", snapshot="ordinary") as rooted:
        assert rooted.output("stat -c %U /home/agent/agents /workspace/w /etc/hosts").split() == ["agent"] * 2 + [
            "root"
        ]
        rooted.output("touch /workspace/roots")
        harness.do(harness.backend.snapshot(rooted.record, "rooted"))
    with harness.sandbox(snapshot="rooted") as again:
        assert again.root_mode, "a snapshot keeps root mode"
        assert again.output("stat -c %U ~agent/agents /workspace/roots").split() == ["agent", "root"]


@needs_ids
def test_processes_of_all_users_are_paused_ended_and_measured(harness: LocalBackendHarness) -> None:
    with harness.sandbox(user="root") as sandbox:
        before = harness.do(harness.backend.disk_used(sandbox.record))
        sandbox.output("cd /workspace && head -c 9M /dev/urandom > d && sync d && chown 33 d && chmod 0 d")
        assert harness.do(harness.backend.disk_used(sandbox.record)) - before >= 8 * 2**20
        assert sandbox.run("setpriv --reuid=33 --clear-groups sh -c 'sleep 600 & sleep 600 &'").exit_code == 0
        harness.do(harness.backend.pause(sandbox.record))
        harness.do(harness.backend.resume(sandbox.record))
        harness.do(harness.backend.end_commands(sandbox.record))
        assert sandbox.run("pgrep sleep").exit_code != 0
        assert sandbox.answers()


def test_image_can_have_root_mode(harness: LocalBackendHarness, image: Image) -> None:
    with harness.sandbox(image=image.model_copy(update={"root_mode": True})) as sandbox:
        assert sandbox.output("id -u; touch /etc/mine") == "0\n"


def test_nul_in_the_environment_is_refused(harness: LocalBackendHarness) -> None:
    with pytest.raises(InvalidInput):
        harness.start(user="root", env={"A": "x\0y"})


def test_namespaces_of_a_sandbox_are_owned_outside_of_it(rooted: RunningSandbox) -> None:
    """So that no capability of its root reaches mounts, network, host name and processes."""
    code = (
        "import fcntl, json, os, sys\n"
        "found = {}\n"
        "for kind in ('mnt', 'net', 'uts', 'ipc', 'pid', 'cgroup'):\n"
        "    owner = fcntl.ioctl(os.open(f'/proc/{sys.argv[1]}/ns/{kind}', os.O_RDONLY), 0xB701)\n"
        "    found[kind] = os.fstat(owner).st_ino\n"
        "found['user'] = os.stat(f'/proc/{sys.argv[1]}/ns/user').st_ino\n"
        "print(json.dumps(found))\n"
    )
    if os.geteuid() != 0:
        pytest.skip("the first process hides its namespaces from its own user outside")
    shown = subprocess.run(["python3", "-c", code, str(rooted.first_process)], capture_output=True, check=True)
    found = json.loads(shown.stdout)
    user = found.pop("user")
    assert set(found.values()) == {os.stat("/proc/self/ns/user").st_ino}
    assert user not in found.values()


def host_id(sandbox: RunningSandbox, inside: int) -> int:
    """Return the host's id of a user of a sandbox in root mode."""
    if IS_ROOT:
        return int(sandbox.record["uid"]) + inside
    ids = find_subordinate_ids()
    return ids["users"][0] + inside - 1 if ids and inside else os.geteuid()


@pytest.mark.timeout(300)
@needs_root
def test_root_mode_of_unprivileged_user_with_subordinate_ids() -> None:
    if shutil.which("newuidmap") is None:
        pytest.skip("this machine has no newuidmap")
    try:
        tally = run_as_ordinary_user(__file__, subordinate_ids=True)
    except NoOrdinaryUserError as reason:
        pytest.skip(str(reason))
    assert tally.failed == 0, tally.report
    assert tally.passed >= 45, tally.report


def build_package(directory: Path) -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("this machine has no dpkg-deb")
    tree = directory / "greeter"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt/greeter").mkdir(parents=True)
    (tree / "opt/greeter/state").mkdir()
    shutil.copy("/usr/bin/id", tree / "opt/greeter/id")
    control = (
        "Package: greeter\nVersion: 1\nArchitecture: all\nMaintainer: Test <test@example.com>\nDescription: test\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/postinst").write_text(POSTINST)
    (tree / "DEBIAN/postinst").chmod(0o755)
    package = directory / "greeter.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, package], check=True, capture_output=True)
    return package
