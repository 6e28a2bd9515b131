"""The fence a build runs in: programs that die with the builder, and steps that see the image and nothing else."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from paddock.errors import BuildError, Unavailable
from paddock.sandbox.images.console import program
from paddock.sandbox.images.settings import SETTINGS_INSIDE, HostSettings

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID")
"""What package installation needs: to own, to give away, to become the users that maintainer scripts run as."""


def dying_with_us() -> list[str]:
    """What to put before a single program so that it dies with the thread that started it."""
    return [program("setpriv", "util-linux"), "--pdeathsig", "KILL", "--"]


def fence(user_id: int | None = None) -> list[str]:
    """What to put before a command so that its processes and mounts die with this process, however it dies.

    An ordinary user becomes root of a user namespace with a range of subordinate ids, which dpkg needs.
    """
    user_id = os.geteuid() if user_id is None else user_id
    words = [*dying_with_us(), program("unshare", "util-linux"), "--mount", "--propagation", "private"]
    words += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    if user_id != 0:
        _demand_subordinate_ids(user_id)
        words += ["--user", "--map-auto", "--map-root-user"]
    return [*words, "--"]


def remove_tree(path: Path) -> None:
    """Remove a tree a build made, whoever its files belong to. What cannot go now is left for the next prune."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists() and os.geteuid() != 0 and shutil.which("newuidmap"):
        subprocess.run([*fence(), "rm", "-rf", "--one-file-system", "--", str(path)], check=False, timeout=600)


class BuildBox:
    """Runs commands as root of an image, with the host's network and nothing else of the host."""

    def __init__(self, root: Path, scratch: Path, settings: HostSettings) -> None:
        self._root = root
        self._scratch = scratch
        self._settings = settings
        self._bwrap = program("bwrap", "bubblewrap")
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o1777)

    @property
    def env(self) -> dict[str, str]:
        """What build steps find in their environment; it reaches them without showing in the process list."""
        return {
            "DEBIAN_FRONTEND": "noninteractive",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": _PATH,
            **self._settings.env,
        }

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command line for one build step."""
        words = self._common()
        words += ["--tmpfs", "/run", "--bind", str(self._scratch), "/tmp", "--chdir", "/tmp"]  # noqa: S108
        words += ["--ro-bind", str(self._settings.directory), SETTINGS_INSIDE]
        for inside, host in self._settings.directories.items():
            words += ["--ro-bind", str(host), inside]
        for name in ("resolv.conf", "hosts"):
            if Path("/etc", name).is_file():
                placeholder(self._root, name)
                words += ["--ro-bind", str(Path("/etc", name).resolve()), f"/etc/{name}"]
        for capability in _CAPABILITIES:
            words += ["--cap-add", f"CAP_{capability}"]
        return [*fence(), *words, "--", *command]

    def probe_argv(self, command: Sequence[str]) -> list[str]:
        """The command line for a look at the finished image: no network, no capability but to write as its owner."""
        words = [*self._common(), "--unshare-net", "--cap-add", "CAP_DAC_OVERRIDE"]
        return [*fence(), *words, "--", *command]

    def _common(self) -> list[str]:
        words = [self._bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        words += ["--unshare-cgroup-try", "--hostname", "build", "--cap-drop", "ALL"]
        return [*words, "--bind", str(self._root), "/", "--dev", "/dev", "--proc", "/proc"]


def placeholder(root: Path, name: str, content: str = "") -> None:
    """Make `/etc/NAME` of an image a plain file, never following a link out of the image."""
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
    program("newuidmap", "uidmap")
    for path in (Path("/etc/subuid"), Path("/etc/subgid")):
        entries = path.read_text().splitlines() if path.is_file() else []
        if not any(entry.split(":")[0] in (name, str(user_id)) for entry in entries):
            raise Unavailable(
                f"building images without root needs subordinate ids for '{name}' in {path}: as root, run "
                f"'usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}'"
            )
