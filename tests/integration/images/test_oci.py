"""OCI images from a layout on the disk; no registry is needed."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from paddock.errors import ImageNotFound, InvalidInput, Unavailable
from paddock.model.sandbox import Image
from paddock.sandbox.images import ImageStore, RegistryCredentials

if TYPE_CHECKING:
    from .conftest import Workshop

needs_programs = pytest.mark.skipif(
    shutil.which("umoci") is None or shutil.which("skopeo") is None, reason="needs umoci and skopeo"
)


def umoci(*words: str | Path) -> None:
    subprocess.run(["umoci", *map(str, words)], check=True, capture_output=True, timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_programs
def test_oci_image_is_pulled_and_listed_like_others(workshop: Workshop, tiny: Image, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    tag = f"{layout}:small"
    umoci("init", "--layout", layout)
    umoci("new", "--image", tag)
    for part in ("usr", "etc", "home", "var/lib/dpkg", "bin", "lib", "lib64"):
        umoci("insert", "--image", tag, tiny.root / part, f"/{part}")
    (tmp_path / "hardlinks").mkdir()
    (tmp_path / "hardlinks/a").write_text("x")
    (tmp_path / "hardlinks/b").hardlink_to(tmp_path / "hardlinks/a")
    umoci("insert", "--image", tag, tmp_path / "hardlinks", "/data")
    umoci("insert", "--image", tag, "--whiteout", "/etc/issue")
    umoci(
        "config", "--image", tag, "--config.user", "agent", "--config.workingdir", "/data",
        "--config.env", "COLOUR=green", "--config.env", "PATH=/usr/bin:/bin",
    )  # fmt: skip
    store = workshop.store()
    reference = f"oci:{tag}"
    with pytest.raises(ImageNotFound, match=f"pull it with 'paddock image build {reference}'"):
        store.resolve(reference)
    image = store.build(reference)
    assert store.resolve(reference) == image
    assert image.env == {"COLOUR": "green", "PATH": "/usr/bin:/bin"}
    assert (image.user.name, image.user.uid, image.user.home) == ("agent", 1000, "/home/agent")
    info = store.show(reference)
    assert info.manifest.kind == "oci"
    assert info.manifest.working_directory == "/data"
    assert sorted(path.name for path in info.directory.iterdir()) == ["build.log", "image.json", "root"]
    assert (image.root / "etc/issue.net").exists()
    assert not (image.root / "etc/issue").exists()
    assert (image.root / "data/a").samefile(image.root / "data/b")
    assert store.build(reference) == image
    assert store.remove(reference) == [image.digest]


@needs_programs
def test_missing_oci_image_is_reported_in_one_line(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images", [])
    before = time.perf_counter()
    with pytest.raises(ImageNotFound) as caught:
        store.build(f"oci:{tmp_path}/nothing:tag")
    assert time.perf_counter() - before < 30
    assert caught.value.message.startswith(f"there is no image at oci:{tmp_path}/nothing:tag: ")
    assert "\n" not in caught.value.message
    assert store.list() == []


def test_credentials_never_show_in_the_process_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "skopeo"
    fake.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/words\n'
        'while [ "$1" != --authfile ]; do shift; done\n'
        f'stat -c %a "$2" >{tmp_path}/mode\ncp "$2" {tmp_path}/auth\necho no such image >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    store = ImageStore(tmp_path / "images", [])
    with pytest.raises(
        ImageNotFound, match=r"image registry\.test/me/thing:1 could not be pulled: registry.test has no such image"
    ):
        store.build(
            "registry.test/me/thing:1",
            credentials=RegistryCredentials(username="me", password=SecretStr("open sesame")),
            platform="linux/arm64/v8",
        )
    words = (tmp_path / "words").read_text()
    assert "sesame" not in words
    assert "--override-arch arm64 --override-variant v8" in words
    assert (tmp_path / "mode").read_text() == "600\n"
    assert json.loads((tmp_path / "auth").read_text())["auths"].keys() == {"registry.test"}
    assert not list((tmp_path / "images").glob(".building-*"))


def test_an_unreachable_registry_is_named_without_network_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "skopeo"
    fake.write_text(
        "#!/bin/sh\n"
        'echo \'pinging container registry docker.io: Get "https://docker.io/v2/": dial tcp: lookup docker.io: '
        "no such host' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    with pytest.raises(ImageNotFound) as caught:
        ImageStore(tmp_path / "images", []).build("nosuch")
    assert "docker.io cannot be reached from here" in caught.value.message
    assert "dial tcp" not in caught.value.message and "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'time="2026-01-01T00:00:00Z" level=fatal msg="Error parsing image name \\"docker://ghcr.io/acme/tool:9\\": '
            'reading manifest 9 in ghcr.io/acme/tool: manifest unknown"',
            "ghcr.io has no such image",
        ),
        (
            'time="2026-01-01T00:00:00Z" level=fatal msg="Error parsing image name \\"docker://ghcr.io/acme/tool:9\\": '
            'Requesting bearer token: invalid status code from registry 403 (Forbidden): denied"',
            "ghcr.io has no such image, or it is private",
        ),
        (
            'level=fatal msg="reading manifest 9 in ghcr.io/acme/tool: unauthorized: authentication required"',
            "ghcr.io has no such image, or it is private",
        ),
        (
            'level=fatal msg="pinging container registry ghcr.io: x509: certificate signed by unknown authority"',
            "ghcr.io shows a certificate that this machine does not trust",
        ),
        ('level=fatal msg="toomanyrequests: slow down"', "it answered: toomanyrequests: slow down"),
    ],
)
def test_registry_errors_are_reported_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, expected: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "message").write_text(message)
    fake = programs / "skopeo"
    fake.write_text(f"#!/bin/sh\ncat {tmp_path}/message >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    with pytest.raises(ImageNotFound) as caught:
        ImageStore(tmp_path / "images", []).build("ghcr.io/acme/tool:9")
    assert caught.value.message == f"image ghcr.io/acme/tool:9 could not be pulled: {expected}"


@needs_programs
def test_invalid_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be written as linux/ARCHITECTURE"):
        ImageStore(tmp_path / "images", []).build("thing", platform="windows/amd64")


def test_missing_program_error_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"'skopeo' is needed to build images: .*apt-get install skopeo"):
        ImageStore(tmp_path / "images", []).build("thing")
    (tmp_path / "tiny.yaml").write_text("base: debian:bookworm\n")
    with pytest.raises(Unavailable, match="apt-get install bubblewrap"):
        ImageStore(tmp_path / "images", [tmp_path]).build("tiny")
