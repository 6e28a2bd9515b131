"""The `host` image: whole, and with nothing private."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from paddock.model.sandbox import Image
from paddock.sandbox.images import ImageStore
from paddock.sandbox.images.built_images import BuiltImageDirectory
from paddock.sandbox.images.host_image import HostImage


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("images"), [])


@pytest.fixture(scope="module")
def host(store: ImageStore) -> Image:
    return store.resolve("host")


def test_host_image_binds_the_hosts_usr(store: ImageStore, host: Image) -> None:
    assert host.binds[0].target == "/usr"
    assert all(bind.read_only for bind in host.binds)
    assert store.resolve("host") == host
    before = time.perf_counter()
    store.resolve("host")
    assert time.perf_counter() - before < 0.02


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_host_image_programs_run_and_links_resolve(host: Image) -> None:
    words = ["bwrap", "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    words += ["--ro-bind", str(host.root), "/"]
    for bind in host.binds:
        words += ["--ro-bind", str(bind.source), bind.target]
    words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "sh", "-c"]
    script = "find /etc /bin /sbin /lib* -xdev -maxdepth 6 -xtype l; python3 -c 'import ssl, asyncio; print(1)'; id -un"
    done = subprocess.run([*words, script], check=True, capture_output=True, text=True, timeout=60)
    assert [line for line in done.stdout.splitlines() if line.startswith("/etc")] == []
    assert done.stdout.splitlines()[-2:] == ["1", "agent"]
    assert done.stderr == ""


def test_host_image_has_no_private_files(host: Image) -> None:
    for path in host.root.rglob("*"):
        original = Path("/") / path.relative_to(host.root)
        if path.is_symlink() or not path.is_file() or not original.is_file():
            continue
        if original.lstat().st_size and path.read_bytes() == original.read_bytes():
            assert original.lstat().st_mode & stat.S_IROTH, f"{original} is private on the host"
    for name in ("shadow", "gshadow", "ssh", "ssl/private", "sudoers", "environment", "fstab", "apt"):
        assert not (host.root / "etc" / name).exists()
    assert (host.root / "etc/machine-id").read_bytes() == b""
    assert (host.root / "etc/hostname").read_text() == "box\n"
    assert {line.split(":")[0] for line in (host.root / "etc/passwd").read_text().splitlines()} == {
        "root",
        "agent",
        "nobody",
    }


def make_host(directory: Path) -> Path:
    for path in ("usr/bin", "usr/lib", "etc/ssl/certs", "etc/alternatives", "etc/fonts"):
        (directory / path).mkdir(parents=True)
    (directory / "bin").symlink_to("usr/bin")
    (directory / "lib").mkdir()
    (directory / "usr/bin/python3.11").write_text("")
    (directory / "usr/bin/python3").symlink_to("python3.11")
    return directory


def test_private_files_dangling_links_and_devices_are_left_out(tmp_path: Path) -> None:
    machine = make_host(tmp_path / "host")
    fonts = machine / "etc/fonts"
    (fonts / "secret").write_text("x")
    (fonts / "secret").chmod(0o600)
    (fonts / "open").write_text("x")
    (fonts / "to-secret").symlink_to("secret")
    (fonts / "chain").symlink_to("to-secret")
    (fonts / "out").symlink_to("/root/.ssh/id_rsa")
    (fonts / "loop").symlink_to("loop")
    os.mkfifo(fonts / "pipe")
    (fonts / "closed").mkdir(mode=0o700)
    (fonts / "closed/file").write_text("x")
    (machine / "etc/alternatives/python").symlink_to("/bin/python3")
    (machine / "etc/alternatives/gone").symlink_to("/usr/bin/gone")
    image = HostImage(BuiltImageDirectory(tmp_path / "images"), machine).resolve()
    assert sorted(path.name for path in (image.root / "etc/fonts").iterdir()) == ["open"]
    assert [path.name for path in (image.root / "etc/alternatives").iterdir()] == ["python"]
    assert [bind.target for bind in image.binds] == ["/usr", "/lib"]


def test_host_image_digest_depends_on_copied_files(tmp_path: Path) -> None:
    machine = make_host(tmp_path / "host")
    host_image = HostImage(BuiltImageDirectory(tmp_path / "images"), machine)
    before = host_image.resolve()
    (machine / "etc/ssl/certs/new.pem").write_text("x")
    after = host_image.resolve()
    assert before.digest != after.digest
    assert (after.root / "etc/ssl/certs/new.pem").exists()
