"""Isolation of build steps: programs die with the builder and see only the image."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from paddock.errors import BuildError, Unavailable
from paddock.sandbox.images.build_command_runner import require_build_program
from paddock.sandbox.images.registry_settings import SETTINGS_INSIDE, PackageRegistrySettings

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID")
"""Capabilities that package installation needs: chown and switching to users of maintainer scripts."""


def bwrap_die_with_parent() -> list[str]:
    """Return a command prefix that kills a program when the starting thread dies."""
    return [require_build_program("setpriv", "util-linux"), "--pdeathsig", "KILL", "--"]


def bwrap_isolation_arguments(user_id: int | None = None) -> list[str]:
    """Return a command prefix that ends all processes and mounts when this process dies.

    An ordinary user becomes root of a user namespace with subordinate ids, which dpkg needs.
    """
    user_id = os.geteuid() if user_id is None else user_id
    words = [
        *bwrap_die_with_parent(),
        require_build_program("unshare", "util-linux"),
        "--mount",
        "--propagation",
        "private",
    ]
    words += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    if user_id != 0:
        _demand_subordinate_ids(user_id)
        words += ["--user", "--map-auto", "--map-root-user"]
    return [*words, "--"]


def remove_build_tree(path: Path) -> None:
    """Remove a build's tree with files of any owner. Leftovers remain for the next prune."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists() and os.geteuid() != 0 and shutil.which("newuidmap"):
        subprocess.run(
            [*bwrap_isolation_arguments(), "rm", "-rf", "--one-file-system", "--", str(path)], check=False, timeout=600
        )


class BuildStepSandbox:
    """Runs commands as root of an image, with the host's network and no other access."""

    def __init__(self, root: Path, scratch: Path, settings: PackageRegistrySettings) -> None:
        self._root = root
        self._scratch = scratch
        self._settings = settings
        self._bwrap = require_build_program("bwrap", "bubblewrap")
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o1777)

    @property
    def env(self) -> dict[str, str]:
        """Environment of build steps, hidden from the process list."""
        return {
            "DEBIAN_FRONTEND": "noninteractive",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": _PATH,
            **self._settings.env,
        }

    def argv(self, command: Sequence[str]) -> list[str]:
        """Return the command line of a build step."""
        words = self._common()
        words += ["--tmpfs", "/run", "--bind", str(self._scratch), "/tmp", "--chdir", "/tmp"]  # noqa: S108
        words += ["--ro-bind", str(self._settings.directory), SETTINGS_INSIDE]
        for inside, host in self._settings.directories.items():
            words += ["--ro-bind", str(host), inside]
        for name in ("resolv.conf", "hosts"):
            if Path("/etc", name).is_file():
                write_etc_placeholder(self._root, name)
                words += ["--ro-bind", str(Path("/etc", name).resolve()), f"/etc/{name}"]
        for capability in _CAPABILITIES:
            words += ["--cap-add", f"CAP_{capability}"]
        return [*bwrap_isolation_arguments(), *words, "--", *command]

    def probe_argv(self, command: Sequence[str]) -> list[str]:
        """Return the command line for inspecting the finished image: no network, no capabilities."""
        words = [*self._common(), "--unshare-net", "--cap-add", "CAP_DAC_OVERRIDE"]
        return [*bwrap_isolation_arguments(), *words, "--", *command]

    def _common(self) -> list[str]:
        words = [self._bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        words += ["--unshare-cgroup-try", "--hostname", "build", "--cap-drop", "ALL"]
        return [*words, "--bind", str(self._root), "/", "--dev", "/dev", "--proc", "/proc"]


def write_etc_placeholder(root: Path, name: str, content: str = "") -> None:
    """Replace `/etc/NAME` of an image with a plain file, without following links."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        etc = os.open("etc", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except OSError as error:
        raise BuildError("the image's /etc is not a directory") from error
    finally:
        os.close(directory)
    try:
        temporary = f".{name}.paddock"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=etc), "w") as file:
            file.write(content)
        os.rename(temporary, name, src_dir_fd=etc, dst_dir_fd=etc)
    finally:
        os.close(etc)


def _demand_subordinate_ids(user_id: int) -> None:
    try:
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:
        name = str(user_id)
    require_build_program("newuidmap", "uidmap")
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        entries = path.read_text().splitlines() if path.is_file() else []
        if not any(entry.split(":")[0] in (name, str(user_id)) for entry in entries):
            raise Unavailable(
                f"building images without root needs subordinate ids for '{name}' in {path}: as root, run "
                f"'usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}'"
            )
