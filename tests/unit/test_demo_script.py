"""`make run` prints commands that work as they are printed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts/demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_next_steps_name_console_and_chat(demo: ModuleType) -> None:
    assert [command for command, _ in demo.NEXT_STEPS][:3] == ["serve", "console", "chat"]


def test_next_steps_are_valid_commands(demo: ModuleType) -> None:
    for command, _ in demo.NEXT_STEPS:
        words = f"{demo.paddock_command()} {command} --help"
        done = subprocess.run(words, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}\n{done.stderr}"


def test_command_is_shown_by_name_only_if_on_path(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert demo.paddock_command() == "paddock"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert demo.paddock_command() == str(programs.relative_to(ROOT) / "paddock")
