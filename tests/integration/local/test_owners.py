"""Ownership of image files in a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends.support import LocalBackendHarness, RunningSandbox, host_image, local_backend

from paddock.model.sandbox import Image, SandboxUser
from paddock.sandbox.local import launcher_client

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make an image of many owners")
OTHERS = {"opt/own": 1000, "opt/roots": 0, "opt/others": 33, "opt/strangers": 70_000}


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Only the ordinary mode: `test_root_mode.py` has the owners of the other."""
    return host_image(tmp_path_factory.mktemp("images"))


@pytest.fixture
def peopled(image: Image, tmp_path: Path) -> Image:
    """An image with something in its home, and files of several owners elsewhere."""
    root = tmp_path / "image"
    subprocess.run(["cp", "-a", image.root, root], check=True)
    home = root / image.user.home.lstrip("/")
    (home / ".config").mkdir()
    (home / ".config/settings").write_text("the image's")
    for path in (home / ".config", home / ".config/settings"):
        os.chown(path, image.user.uid, image.user.gid)
    for name, owner in OTHERS.items():
        (root / name).write_text("the image's")
        os.chown(root / name, owner, owner)
    return image.model_copy(update={"root": root})


def written(running_sandbox: RunningSandbox, *names: str) -> list[str]:
    """Return the files that the sandbox can change."""
    return running_sandbox.output(
        "for each in {}; do echo the sandbox >>/$each && echo $each; done; true".format(" ".join(names))
    ).split()


def kept(running_sandbox: RunningSandbox) -> set[str]:
    """Return the sandbox's files besides its image."""
    return {
        str(path.relative_to(running_sandbox.files.upper))
        for path in running_sandbox.files.upper.rglob("*")
        if path.is_file()
    }


def test_image_user_files_belong_to_sandbox_without_copy(harness: LocalBackendHarness, peopled: Image) -> None:
    with harness.sandbox(image=peopled) as running_sandbox:
        home = peopled.user.home.lstrip("/")
        assert not [path for path in kept(running_sandbox) if path.startswith(home)]
        assert (
            running_sandbox.output(["stat", "-c", "%u:%g", f"/{home}/.config/settings", "/opt/own"]).split()
            == ["1000:1000"] * 2
        )
        assert written(running_sandbox, f"{home}/.config/settings", *OTHERS) == [f"{home}/.config/settings", "opt/own"]
        assert running_sandbox.output(["cat", "/opt/own"]) == "the image'sthe sandbox\n"
        assert kept(running_sandbox) >= {f"{home}/.config/settings", "opt/own"}
        assert os.stat(running_sandbox.files.upper / "opt/own").st_uid == running_sandbox.record["uid"]
    assert (peopled.root / "opt/own").read_text() == "the image's"


def test_sandboxes_of_one_image_share_no_changes(harness: LocalBackendHarness, peopled: Image) -> None:
    with harness.sandbox(image=peopled) as one, harness.sandbox(image=peopled) as other:
        assert one.record["uid"] != other.record["uid"]
        assert written(one, "opt/own") == ["opt/own"]
        assert other.output(["cat", "/opt/own"]) == "the image's"
        assert written(other, "opt/own") == ["opt/own"]


def test_home_is_copied_if_owners_cannot_be_mapped(peopled: Image, tmp_path: Path) -> None:
    """Numbers of sandboxes below the image user's leave no room for a map, which is what an old kernel says as well."""
    with local_backend(tmp_path, peopled, uid_base=500, uid_count=3) as low, low.sandbox() as running_sandbox:
        settings = f"{peopled.user.home.lstrip('/')}/.config/settings"
        assert os.stat(running_sandbox.files.upper / settings).st_uid == running_sandbox.record["uid"] == 500
        assert written(running_sandbox, settings, *OTHERS) == [settings]


def test_home_is_copied_if_overlays_refuse_mapped_layers(
    peopled: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 5.19: after the overlay has marked its working directory. Here it is refused a layer twice."""
    mapped = "mount_overlay(plan, copy_with_mapped_owner(image, plan, sandbox))"
    program = Path(launcher_client.LAUNCHER_PROGRAM).read_text()
    assert program.count(mapped) == 1
    older = tmp_path / "launcher_process.py"
    older.write_text(program.replace(mapped, mapped.replace("(plan,", "({**plan, 'below': plan['upper']},", 1)))
    monkeypatch.setattr(launcher_client, "LAUNCHER_PROGRAM", str(older))
    with local_backend(tmp_path, peopled) as harness, harness.sandbox() as running_sandbox:
        settings = f"{peopled.user.home.lstrip('/')}/.config/settings"
        assert os.stat(running_sandbox.files.upper / settings).st_uid == running_sandbox.record["uid"]
        assert written(running_sandbox, settings, *OTHERS) == [settings]


@pytest.mark.parametrize("home", ["missing", "root's"])
def test_home_exists_and_belongs_to_sandbox_for_any_image(
    harness: LocalBackendHarness, peopled: Image, home: str
) -> None:
    path = peopled.root / peopled.user.home.lstrip("/")
    if home == "missing":
        shutil.rmtree(path)
    else:
        os.chown(path, 0, 0)
    with harness.sandbox(image=peopled) as running_sandbox:
        assert running_sandbox.output("cd && touch here && stat -c %u:%g ~ here").split() == ["1000:1000"] * 2


def test_image_with_root_user_hands_over_only_its_home(harness: LocalBackendHarness, peopled: Image) -> None:
    home = peopled.root / "root"
    home.joinpath("notes").write_text("the image's")
    roots = peopled.model_copy(update={"user": SandboxUser(name="root", uid=0, gid=0, home="/root")})
    with harness.sandbox(image=roots) as running_sandbox:
        assert running_sandbox.output(["id", "-u"]) == "0\n"
        assert written(running_sandbox, "root/notes", *OTHERS) == ["root/notes"]


def test_snapshot_files_belong_to_the_restored_sandbox(harness: LocalBackendHarness, peopled: Image) -> None:
    settings = f"{peopled.user.home.lstrip('/')}/.config/settings"
    with harness.sandbox(image=peopled) as running_sandbox:
        assert written(running_sandbox, settings) == [settings]
        harness.do(harness.backend.snapshot(running_sandbox.record, "owned"))
    with (
        harness.sandbox(image=peopled),
        harness.sandbox(image=peopled, snapshot="owned") as later,
    ):  # It gets another number.
        assert later.output(["cat", f"/{settings}"]) == "the image'sthe sandbox\n"
        assert written(later, settings, "opt/own", "opt/roots") == [settings, "opt/own"]


def test_snapshot_maps_user_and_group_separately(harness: LocalBackendHarness, peopled: Image) -> None:
    for name, user, group in (("opt/users", 1000, 33), ("opt/groups", 0, 1000)):
        path = peopled.root / name
        path.write_text("the image's")
        os.chown(path, user, group)
        path.chmod(0o664)
    with harness.sandbox(image=peopled) as running_sandbox:
        assert written(running_sandbox, "opt/users", "opt/groups") == ["opt/users", "opt/groups"]
        harness.do(harness.backend.snapshot(running_sandbox.record, "mixed"))
    with harness.sandbox(image=peopled), harness.sandbox(image=peopled, snapshot="mixed") as later:
        assert written(later, "opt/users", "opt/groups") == ["opt/users", "opt/groups"]
        assert later.output(["cat", "/opt/groups"]) == "the image'sthe sandbox\nthe sandbox\n"
