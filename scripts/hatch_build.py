"""Builds the console into packages, unless it has been built before.

An editable installation serves what `make console` builds, and says how where that was not done.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/paddock/console/static/index.html"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_console(Path(self.root))


def build_console(root: Path) -> None:
    """Build the console if it is not there. Raises `RuntimeError` saying what is missing."""
    if (root / PAGE).is_file():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "the console has to be built into the package, and there is no npm: install Node.js 20 or newer, "
            "or run `make console`, which brings its own, and build again"
        )
    for words in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run([npm, *words], cwd=root / "web", check=False)
        if done.returncode:
            raise RuntimeError(f"the console could not be built: `npm {' '.join(words)}` in web/ failed")
    if not (root / PAGE).is_file():
        raise RuntimeError(f"the console was built, but there is no {PAGE}")
