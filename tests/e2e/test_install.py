"""Install the built packages as a user does, on a machine without Node.js, and start them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.cli_driver import COMMAND_TIMEOUT
from tests.e2e.console.console_visitor import open_visitor
from tests.support.server import Server

ROOT = Path(__file__).parents[2]
UV_PROGRAM = ROOT / ".venv/bin/uv"
NODE_PROGRAMS = {"node", "nodejs", "npm", "npx", "corepack"}
CONSOLE_PAGE = "paddock/console/static/index.html"
SCRIPT = "turns:\n  - say: Hello from the wheel.\n"
CONFIG = """\
llm:
  providers:
    practice: {kind: script, file: hello.yaml}
  models:
    hello: practice
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment: no Node.js on PATH, a separate home, the pinned versions."""
    directory = tmp_path_factory.mktemp("machine")
    programs, home = directory / "bin", directory / "home"
    programs.mkdir()
    home.mkdir()
    for folder in ("/usr/sbin", "/sbin", "/usr/bin", "/bin"):
        for program in Path(folder).glob("*"):
            if program.name not in NODE_PROGRAMS and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    assert not any(shutil.which(name, path=str(programs)) for name in NODE_PROGRAMS)
    pins = directory / "pins.txt"
    pins.write_text("\n".join(re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE)))
    # Use the package indexes and caches of the machine.
    inherited = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    cache = subprocess.run([UV_PROGRAM, "cache", "dir"], check=True, capture_output=True, text=True).stdout.strip()
    return {
        "UV_SYSTEM_CERTS": "1",
        **inherited,
        "PATH": str(programs),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "UV_CACHE_DIR": cache,
        "UV_CONSTRAINT": str(pins),
        "PIP_CONSTRAINT": str(pins),
        "PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config/pip/pip.conf")),
        "PADDOCK_DATA": str(directory / "data"),
    }


def run_successfully(arguments: list[str | Path], env: dict[str, str], **more: object) -> str:
    result = subprocess.run(arguments, env=env, capture_output=True, text=True, timeout=110, check=False, **more)  # type: ignore[call-overload]
    assert result.returncode == 0, f"{arguments}\n{result.stdout}\n{result.stderr}"
    return str(result.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / "src" / CONSOLE_PAGE).exists():
        problem = "the console is not built; scripts/setup console builds it"
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    target = tmp_path_factory.mktemp("dist")
    return build_package("wheel", target)


def build_package(kind: str, target: Path) -> Path:
    arguments = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    subprocess.run(arguments, cwd=ROOT, check=True, capture_output=True, timeout=110)
    (package,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return package


@pytest.fixture(scope="module")
def sdist(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_package("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `paddock` program of a new virtual environment."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run_successfully([UV_PROGRAM, "venv", "--quiet", "--python", sys.executable, venv], environment)
    run_successfully([UV_PROGRAM, "pip", "install", "--quiet", "--python", venv / "bin/python", wheel], environment)
    return venv / "bin/paddock"


@pytest.fixture(scope="module")
def address(installed: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server started from the installed wheel."""
    directory = tmp_path_factory.mktemp("serve")
    (directory / "hello.yaml").write_text(SCRIPT)
    (directory / "paddock.yaml").write_text(CONFIG)
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            [installed, "serve", "--port", "0", "--json"],
            cwd=directory,
            # Sandboxes of the image `host` need the real paths of programs.
            env={**environment, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, (directory / "log").read_text()
        yield json.loads(line)["url"]
    finally:
        server.terminate()
        assert server.wait(COMMAND_TIMEOUT) == 0
        assert server.stdout is not None
        server.stdout.close()


def test_wheel_serves_the_console(address: str) -> None:
    page = httpx.get(address, timeout=COMMAND_TIMEOUT, trust_env=False)
    assert page.status_code == 200 and '<div id="root"' in page.text
    scripts = re.findall(r'src="(/[^"]+\.js)"', page.text)
    assert scripts
    for script in scripts:
        assert httpx.get(address + script, timeout=COMMAND_TIMEOUT, trust_env=False).status_code == 200


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.mark.parametrize("language", ["en", "zh"])
def test_template_runs_from_console_of_the_wheel(
    browser: Browser, address: str, environment: dict[str, str], language: str
) -> None:
    """A new user signs in, runs a template with one click and reads its deliverables."""
    server = Server(Path(environment["PADDOCK_DATA"]))
    server.url = address
    with open_visitor(browser, server, language=language) as person:
        # The sandbox of a run may be gone when the page asks for it.
        person.expected_errors.append(re.compile(r"404 .*/v1/sandboxes/sb-\w+\W*$"))
        person.sign_in("/tasks")
        start = person.button("runs.tasks.runNamed", name="hello-script")
        expect(start).to_be_visible()
        person.check_accessibility("the tasks")
        start.click()
        person.page.wait_for_url(re.compile("/runs/run-"))
        expect(person.page.get_by_text(person.t("runs.state.succeeded")).first).to_be_visible(timeout=60_000)
        person.page.get_by_role("tab", name=re.compile(person.t("runs.tab.deliverables"))).click()
        expect(person.page.get_by_text("counts.txt").first).to_be_visible()
        expect(person.page.get_by_text("1: 6 words").first).to_be_visible()
        person.check_accessibility("the deliverables")
        save_screenshot(person.page, f"wheel-template-{language}")
        person.assert_no_errors()


def test_chat_works_from_the_wheel(installed: Path, address: str, environment: dict[str, str]) -> None:
    answer = run_successfully([installed, "chat", "Hello?", "--print"], environment, stdin=subprocess.DEVNULL)
    assert "Hello from the wheel." in answer


def test_doctor_of_the_wheel_starts_a_sandbox(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    # Sandboxes cannot use programs that are links below a temporary directory.
    env = {**environment, "PATH": os.environ["PATH"], "PADDOCK_DATA": str(tmp_path / "data")}
    result = subprocess.run(
        [installed, "doctor", "--json"], env=env, capture_output=True, text=True, timeout=110, check=False
    )
    found = {each["check"]: each["ok"] for each in json.loads(result.stdout)["findings"]}
    assert found["trial"], result.stdout


def test_uv_tool_install(wheel: Path, environment: dict[str, str], tmp_path: Path) -> None:
    env = {**environment, "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    run_successfully([UV_PROGRAM, "tool", "install", "--quiet", "--python", sys.executable, wheel], env)
    assert "paddock" in run_successfully([tmp_path / "bin/paddock", "version"], env).lower()


def test_pipx_install(wheel: Path, environment: dict[str, str], tmp_path: Path) -> None:
    run_successfully([UV_PROGRAM, "venv", "--quiet", "--python", sys.executable, tmp_path / "pipx"], environment)
    run_successfully(
        [UV_PROGRAM, "pip", "install", "--quiet", "--python", tmp_path / "pipx/bin/python", "pipx"], environment
    )
    directories = {"PIPX_HOME": "home", "PIPX_BIN_DIR": "bin", "PIPX_MAN_DIR": "man"}
    env = {**environment, **{variable: str(tmp_path / name) for variable, name in directories.items()}}
    # uv shares files with its cache; pip takes several times as long.
    env |= {"PIPX_DEFAULT_BACKEND": "uv", "PATH": f"{UV_PROGRAM.parent}:{environment['PATH']}"}
    run_successfully([tmp_path / "pipx/bin/pipx", "install", "--python", sys.executable, wheel], env)
    assert "paddock" in run_successfully([tmp_path / "bin/paddock", "version"], env).lower()


def test_sdist_builds_a_wheel_without_node(
    wheel: Path, sdist: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    env = {name: value for name, value in environment.items() if not name.endswith("_CONSTRAINT")}
    run_successfully(
        [UV_PROGRAM, "build", "--wheel", "--python", sys.executable, "--out-dir", tmp_path / "dist", sdist], env
    )
    (rebuilt_wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(rebuilt_wheel) as built, zipfile.ZipFile(wheel) as expected:
        assert CONSOLE_PAGE in built.namelist()
        assert set(built.namelist()) == set(expected.namelist())


def test_checkout_build_without_node_fails_with_one_line(
    sdist: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Without build isolation the build cannot install Node.js."""
    shutil.unpack_archive(sdist, tmp_path)
    checkout = tmp_path / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(checkout / "src/paddock/console/static")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "."]
    result = subprocess.run(
        build, cwd=checkout, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert result.returncode
    assert "error: building the console needs Node.js 20 or newer" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_make_wheel_builds_into_dist_after_setup_and_console() -> None:
    result = subprocess.run(["make", "-n", "wheel"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    steps = ("scripts/setup run", "scripts/setup console", "hatchling build --target wheel --directory dist")
    positions = [result.stdout.index(step) for step in steps]
    assert positions == sorted(positions)
