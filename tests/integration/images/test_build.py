"""Recipes built for real, with mmdebstrap and bubblewrap."""

from __future__ import annotations

import asyncio
import io
import os
import re
import select
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.errors import BuildError, Conflict, ImageNotFound
from paddock.model.sandbox import Image
from paddock.sandbox.images import BuildProgress, ImageBuildCancelled, ImageStore

if TYPE_CHECKING:
    from .conftest import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def inside(image: Image, *command: str) -> str:
    """Run a program in an image as a sandbox would, and return what it prints."""
    words = ["bwrap", "--unshare-all", "--ro-bind", str(image.root), "/", "--dev", "/dev", "--proc", "/proc"]
    return subprocess.run([*words, *command], check=True, capture_output=True, text=True, timeout=60).stdout


def test_recipe_is_built_into_root_file_system(workshop: Workshop, tiny: Image) -> None:
    assert tiny.root == workshop.images / f"tiny-{tiny.digest[:12]}" / "root"
    assert inside(tiny, "/usr/bin/python3", "-c", "import asyncio, ssl; print('works')") == "works\n"
    info = workshop.store().show("tiny")
    assert info.current
    assert info.manifest.python.startswith("3.11")
    assert info.manifest.packages["python3"]
    assert info.manifest.size > 50 * 2**20
    assert (info.directory / "build.log").stat().st_size > 0
    assert sorted(path.name for path in info.directory.iterdir()) == ["build.log", "image.json", "root"]


def test_image_has_no_traces_of_host_or_build(tiny: Image) -> None:
    root = tiny.root
    assert (root / "etc/resolv.conf").read_bytes() == b""
    assert (root / "etc/hostname").read_text() == "box\n"
    assert (root / "etc/machine-id").read_bytes() == b""
    assert not (root / "usr/sbin/policy-rc.d").exists()
    assert list((root / "dev").iterdir()) == []
    assert not [path for path in root.rglob("*") if path.is_file() and path.lstat().st_mode & stat.S_ISUID]
    assert list((root / "tmp").iterdir()) == []
    assert not list((root / "var/cache/apt").glob("*.bin"))
    assert not [path for path in (root / "usr/share/man").rglob("*.gz") if not path.is_symlink()]
    assert not list((root / "etc/apt/apt.conf.d").glob("*mmdebstrap*"))


def test_second_build_is_instant(workshop: Workshop, tiny: Image) -> None:
    steps: list[BuildProgress] = []
    before = time.perf_counter()
    assert workshop.store().build("tiny", steps.append) == tiny
    assert time.perf_counter() - before < 1
    assert steps == []


def test_cached_recipe_resolves_quickly(workshop: Workshop, tiny: Image) -> None:
    store = workshop.store()
    store.resolve("tiny")
    times = []
    for _ in range(50):
        before = time.perf_counter()
        assert store.resolve("tiny") == tiny
        times.append(time.perf_counter() - before)
    assert sorted(times)[25] < 0.002


def test_layer_adds_to_its_base(workshop: Workshop, tiny: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY_PASSWORD", "not passed on")
    monkeypatch.setenv("PIP_TIMEOUT", "17")
    (workshop.recipes / "greeting.txt").write_text("hello\n")
    workshop.write(
        "layer",
        f"""
base: tiny
apt: [tree]
user: {{name: worker, uid: 1234, gid: 1235, home: /home/worker}}
env: {{COLOUR: blue}}
files:
  /etc/greeting: {{source: greeting.txt}}
  /home/worker/bin/run: {{content: "#!/bin/sh\\n", mode: "0750"}}
run:
  - test ! -e {workshop.recipes} && test ! -e /run/systemd && env | cut -d= -f1 | sort >/etc/build-env
  - grep CapEff /proc/self/status >/etc/build-capabilities
""",
    )
    steps: list[BuildProgress] = []
    image = workshop.store().build("layer", steps.append)
    assert image.user.name == "worker"
    assert image.env == {"COLOUR": "blue"}
    assert inside(image, "tree", "--version").startswith("tree")
    assert inside(image, "id", "-u", "worker") == "1234\n"
    assert (image.root / "etc/greeting").read_text() == "hello\n"
    script = (image.root / "home/worker/bin/run").lstat()
    assert stat.S_IMODE(script.st_mode) == 0o750
    if os.geteuid() == 0:
        assert (script.st_uid, script.st_gid) == (1234, 1235)
    seen = (image.root / "etc/build-env").read_text().split()
    assert "PIP_TIMEOUT" in seen
    assert "HTTPS_PROXY_PASSWORD" not in seen
    administrator = 1 << 21
    assert not int((image.root / "etc/build-capabilities").read_text().split()[1], 16) & administrator
    assert not (tiny.root / "etc/greeting").exists()
    fractions = [step.fraction for step in steps if step.fraction is not None]
    assert fractions == sorted(fractions)
    assert steps[-1] == BuildProgress("done", 1.0)
    check_step_numbers(steps)


def check_step_numbers(steps: list[BuildProgress]) -> None:
    """Check that each step of a build has the next number, and the last one that of all steps."""
    numbered = [step for step in steps if step.step_number is not None]
    numbers = list(dict.fromkeys(step.step_number for step in numbered))
    assert numbers == list(range(1, len(numbers) + 1))
    assert {step.step_count for step in numbered} == {len(numbers)}
    assert len(numbers) == len(dict.fromkeys(step.step for step in numbered))


def test_image_and_base_share_one_progress(workshop: Workshop, tiny: Image) -> None:
    workshop.write("ground", "base: tiny\nfiles: {/etc/ground: {content: low}}\n")
    workshop.write("storey", "base: ground\nfiles: {/etc/storey: {content: high}}\n")
    steps: list[BuildProgress] = []
    workshop.store().build("storey", steps.append)
    fractions = [step.fraction for step in steps if step.fraction is not None]
    assert fractions == sorted(fractions)
    assert [step.step for step in steps if step.step.endswith("done")] == ["ground: done", "done"]
    assert steps[-1] == BuildProgress("done", 1.0)
    check_step_numbers(steps)


def test_image_with_only_metadata_changes_needs_no_disk_space(workshop: Workshop, tiny: Image) -> None:
    services = "services: [{name: web, command: serve, ready: /tmp/web}, {name: page, command: show, after: [web]}]\n"
    workshop.write("same", "base: tiny\nenv: {COLOUR: red}\nnested_namespaces: true\n" + services)
    before = (tiny.root / "etc/passwd").read_bytes()
    image = workshop.store().build("same")
    assert (image.env, image.nested_namespaces) == ({"COLOUR": "red"}, True)
    assert [(each.name, each.after, each.ready) for each in image.services] == [
        ("web", (), "/tmp/web"),
        ("page", ("web",), None),
    ]
    python = (image.root / "usr/bin/python3").resolve().relative_to(image.root)
    assert (image.root / python).samefile(tiny.root / python)
    assert inside(image, "/usr/bin/python3", "-c", "print('works')") == "works\n"
    workshop.store().remove("same")
    assert (tiny.root / "etc/passwd").read_bytes() == before
    assert inside(tiny, "/usr/bin/python3", "-c", "print('works')") == "works\n"


def test_exported_tar_has_the_whole_root(workshop: Workshop, tiny: Image) -> None:
    buffer = io.BytesIO()
    workshop.store().export_tar(tiny, buffer)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        members = {member.name: member for member in archive}
    assert members["./usr/bin/python3"].issym()
    assert members["./etc/passwd"].uid == 0
    assert members["./home/agent"].uid == 1000


def test_failed_build_shows_its_last_lines_and_keeps_its_log(workshop: Workshop, tiny: Image) -> None:
    workshop.write("broken", "base: tiny\nrun: ['echo about to fail; exit 3']\n")
    store = workshop.store()
    with pytest.raises(BuildError, match=re.escape("image 'broken': step 'run[0]' ended with exit code 3")) as caught:
        store.build("broken")
    assert "about to fail" in caught.value.message
    log = Path(caught.value.message.rpartition(" ")[2])
    assert log.parent == workshop.images / "logs"
    assert "about to fail" in log.read_text()
    assert not any(info.manifest.name == "broken" for info in store.list())
    assert workshop.workspaces() == []
    store.prune()
    assert not log.exists()


def test_image_without_python_is_refused(workshop: Workshop, tiny: Image) -> None:
    workshop.write("bare", "base: tiny\nrun: ['rm /usr/bin/python3*']\n")
    with pytest.raises(BuildError, match=r"no usable python3 .*needs /usr/bin/python3 >= 3.9.*add 'python3' to apt"):
        workshop.store().build("bare")


def test_killed_build_leaves_no_processes_mounts_or_images(workshop: Workshop, tiny: Image) -> None:
    workshop.write("endless", "base: tiny\nrun: ['echo under way; exec sleep 600']\n")
    script = (
        "import sys; from pathlib import Path; from paddock.sandbox.images import ImageStore\n"
        "store = ImageStore(Path(sys.argv[1]), [Path(sys.argv[2])])\n"
        "store.build('endless', lambda now: print(now.line, flush=True))\n"
    )
    words = [sys.executable, "-c", script, str(workshop.images), str(workshop.recipes)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        assert any(line == "under way\n" for line in builder.stdout)
        (workspace,) = workshop.workspaces()
        assert workshop.store().prune().leftovers == 0, "a living builder's workspace was taken for a leftover"
        programs = processes_naming(str(workspace))
        assert programs
        builder.send_signal(signal.SIGKILL)
        builder.wait(timeout=10)
        for descriptor in programs:
            assert select.select([descriptor], [], [], 10)[0], "a program of the build outlived its builder"
            os.close(descriptor)
    assert str(workspace) not in Path("/proc/self/mountinfo").read_text()
    store = workshop.store()
    assert not any(info.manifest.name == "endless" for info in store.list())
    assert workspace.exists()
    assert store.prune().leftovers == 1
    assert not workspace.exists()


def processes_naming(text: str) -> list[int]:
    """A descriptor, readable when it has ended, for every process with this text on its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text in (entry / "cmdline").read_text():
                found.append(os.pidfd_open(int(entry.name)))
        except OSError:
            continue
    return found


def test_second_builder_waits_for_the_first(workshop: Workshop, tiny: Image) -> None:
    workshop.write("contended", "base: tiny\nrun: ['date +%N >/etc/built']\n")
    images: list[Image] = []
    steps: list[BuildProgress] = []

    def build() -> None:
        images.append(workshop.store().build("contended", steps.append))

    builders = [threading.Thread(target=build) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(timeout=300)
    assert len(images) == 2
    assert images[0] == images[1]
    step_names = [step.step for step in steps]
    assert step_names.count("copy tiny") == 1 and step_names.count("waiting for another build") == 1


def test_cancelled_build_leaves_nothing(workshop: Workshop, tiny: Image) -> None:
    workshop.write("cancelled", "base: tiny\nrun: ['echo under way; exec sleep 600']\n")
    cancel = threading.Event()

    def watch(now: BuildProgress) -> None:
        if now.line == "under way":
            cancel.set()

    with pytest.raises(ImageBuildCancelled):
        workshop.store().build("cancelled", watch, cancel=cancel)
    assert workshop.workspaces() == []


def test_cancelling_the_awaiting_task_ends_the_build(workshop: Workshop, tiny: Image) -> None:
    workshop.write("awaited", "base: tiny\nrun: ['echo under way; exec sleep 600']\n")

    async def cancel_when_under_way() -> None:
        under_way = asyncio.Event()

        def watch(now: BuildProgress) -> None:
            if now.line == "under way":
                under_way.set()

        task = asyncio.create_task(workshop.store().build_async("awaited", watch))
        await asyncio.wait_for(under_way.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_when_under_way())
    assert workshop.workspaces() == []


def test_prune_keeps_images_in_use(workshop: Workshop, tiny: Image) -> None:
    store = workshop.store()
    workshop.write("ageing", "base: tiny\nenv: {AGE: '1'}\n")
    first = store.build("ageing")
    workshop.write("ageing", "base: tiny\nenv: {AGE: '2'}\n")
    with pytest.raises(ImageNotFound, match="has changed since it was built: run 'paddock image build ageing'"):
        store.resolve("ageing")
    second = store.build("ageing")
    assert store.resolve(f"ageing@{first.digest[:12]}") == first
    assert {info.manifest.digest: info.current for info in store.list() if info.manifest.name == "ageing"} == {
        first.digest: False,
        second.digest: True,
    }
    with pytest.raises(Conflict, match="is in use by a sandbox"):
        store.remove("ageing", in_use={first.digest})
    assert f"ageing@{first.digest[:12]}" not in store.prune(in_use={first.digest}).images
    used = store.disk_used()
    assert f"ageing@{first.digest[:12]}" in store.prune().images
    assert store.disk_used() < used
    assert not first.root.exists()
    assert store.remove(second.digest[:12]) == [second.digest]
    with pytest.raises(ImageNotFound, match="is not built yet: run 'paddock image build ageing'"):
        store.resolve("ageing")


def test_alias_resolves_to_image(workshop: Workshop, tiny: Image) -> None:
    store = ImageStore(workshop.images, [workshop.recipes], aliases={"default": "tiny"})
    assert store.resolve("default") == tiny
    assert "default" in store.names()
