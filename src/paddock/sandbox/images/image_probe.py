"""Inspection of a finished image from inside."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import ValidationError

from paddock.errors import BuildError
from paddock.model.sandbox import FrozenModel
from paddock.sandbox.images.build_command_runner import BuildCommandFailed, BuildCommandRunner
from paddock.sandbox.images.build_sandbox import BuildStepSandbox

_SCRIPT = r"""
import asyncio, grp, json, os, pwd, ssl, subprocess, sys
if not os.path.exists("/usr/bin/python3"):
    os.symlink(sys.executable, "/usr/bin/python3")
users = {u.pw_name: [u.pw_uid, u.pw_gid, u.pw_dir, u.pw_shell] for u in pwd.getpwall()}
groups = {g.gr_name: g.gr_gid for g in grp.getgrall()}
try:
    query = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n"]
    lines = subprocess.check_output(query, stderr=subprocess.DEVNULL).decode().split("\n")
except (OSError, subprocess.CalledProcessError):
    lines = []
packages = dict(line.split(" ", 1) for line in lines if " " in line)
print(json.dumps({"version": list(sys.version_info[:3]), "users": users, "groups": groups, "packages": packages}))
"""
_NEEDED = "Paddock's daemon in every sandbox needs /usr/bin/python3 >= 3.9 with its standard library"


class ImageProbeFindings(FrozenModel):
    """Programs and users found in an image."""

    version: tuple[int, int, int]
    users: Mapping[str, tuple[int, int, str, str]]
    groups: Mapping[str, int]
    packages: Mapping[str, str]

    @property
    def python(self) -> str:
        return ".".join(str(number) for number in self.version)


def probe_image(
    name: str, sandbox: BuildStepSandbox, console: BuildCommandRunner, env: Mapping[str, str]
) -> ImageProbeFindings:
    """Check that the daemon can run in an image. Raises `BuildError` naming what is missing."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    if "PATH" in env:
        environment["PATH"] = env["PATH"]
    try:
        # Isolated mode ignores the image's variables and user packages.
        output = console.capture(sandbox.probe_argv(["python3", "-I", "-c", _SCRIPT]), env=environment)
        findings = ImageProbeFindings.model_validate(json.loads(output))
    except BuildCommandFailed as error:
        reason = error.last_lines[-1] if error.last_lines else error.reason
        raise BuildError(f"image '{name}' has no usable python3 ({reason}); {_NEEDED}: add 'python3' to apt") from None
    except (ValueError, ValidationError) as error:
        raise BuildError(f"image '{name}' has a python3 that does not work; {_NEEDED}") from error
    if findings.version < (3, 9):
        raise BuildError(f"image '{name}' has Python {findings.python}; {_NEEDED}")
    return findings
