"""`paddock --help` is instant: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = {"aiohttp", "alembic", "asyncio", "fastapi", "pydantic", "rich", "sqlalchemy", "starlette", "uvicorn", "yaml"}
SHOW = "import sys; from paddock.cli.main import run; run({words!r}); print(*sys.modules, sep=chr(10), file=sys.stderr)"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Compiled once and kept, as it is in an installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("compiled"))}


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["sandbox", "--help"], ["sandbox", "exec", "--help"], ["key", "--help"]]
)
def test_help_imports_nothing_heavy(words: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(words=words)], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    # typer reads some types of argument with pydantic, as soon as a command that has them is looked at.
    allowed = {"pydantic"} if words[0] in ("sandbox", "key") else set()
    assert loaded & HEAVY <= allowed


def test_help_is_at_most_a_few_times_slower_than_bare_python(environment: dict[str, str]) -> None:
    command = str(Path(sys.executable).with_name("paddock"))
    bare, help_ = [sys.executable, "-c", "pass"], [command, "--help"]
    for words in (bare, help_):
        subprocess.run(words, capture_output=True, env=environment, check=True)
    ratio = min(_seconds(help_, environment) / _seconds(bare, environment) for _ in range(5))
    assert ratio < 8


def _seconds(words: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, capture_output=True, env=environment, check=True)
    return time.perf_counter() - began
