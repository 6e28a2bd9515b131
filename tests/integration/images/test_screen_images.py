"""The images with a screen: what is in them, what runs in their sandboxes, and that it comes back when it dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.contract.backends.support import RunningSandbox, eventually
from tests.support.screen_images import SCREEN_IMAGES, run_screen_backend, run_screen_sandbox

from paddock.sandbox.daemon.client import DaemonClient

T = TypeVar("T")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
each = pytest.mark.parametrize("kind", SCREEN_IMAGES)
browsers = pytest.mark.parametrize("kind", ["browser", "mobile"])

UP = {
    "desktop": ["display", "bus", "windows", "panel", "files"],
    "browser": ["display", "bus", "windows", "browser"],
    "windows": ["display", "bus", "windows", "panel", "wine"],
    "mobile": ["display", "bus", "windows", "browser"],
}
SIZES = {"desktop": (1280, 800), "browser": (1280, 800), "windows": (1280, 800), "mobile": (412, 915)}
MIB = 2**20

LOOK = """
import json, socket, os
from Xlib import X, display
from PIL import Image
screen = display.Display()
root = screen.screen().root
atom = screen.intern_atom
check = root.get_full_property(atom("_NET_SUPPORTING_WM_CHECK"), X.AnyPropertyType)
manager = check and screen.create_resource_object("window", check.value[0])
name = manager and manager.get_full_property(atom("_NET_WM_NAME"), X.AnyPropertyType)
size = root.get_geometry()
data = root.get_image(0, 0, size.width, size.height, X.ZPixmap, 0xFFFFFFFF).data
picture = Image.frombytes("RGB", (size.width, size.height), data, "raw", "BGRX")
line = socket.socket(socket.AF_UNIX)
line.settimeout(5)
line.connect(os.environ["PADDOCK_DISPLAY_SOCKET"])
print(json.dumps({
    "manager": name.value.decode() if name else None,
    "size": [size.width, size.height],
    "colours": len(picture.getcolors(1 << 21)),
    "greeting": line.recv(12).decode(),
}))
"""
TREE = """
import gi
gi.require_version("Atspi", "2.0")
from gi.repository import Atspi
top = Atspi.get_desktop(0)
print([top.get_child_at_index(place).get_name() for place in range(top.get_child_count())])
"""
EVALUATE = """
import json, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.connect_over_cdp(sys.argv[1])
    page = browser.contexts[0].pages[0]
    page.goto(sys.argv[2])
    print(json.dumps(page.evaluate(sys.argv[3])))
"""


class SessionSandboxes:
    """One sandbox of each image, started when a test first needs it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._made: dict[str, RunningSandbox] = {}

    def __getitem__(self, kind: str) -> RunningSandbox:
        if kind not in self._made:
            place = self._stack.enter_context(run_screen_backend(self._directory, kind))
            self._made[kind] = self._stack.enter_context(place.sandbox())
        return self._made[kind]


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionSandboxes]:
    with ExitStack() as stack:
        yield SessionSandboxes(tmp_path_factory.mktemp("screens"), stack)


@pytest.fixture
def sandbox(sandboxes: SessionSandboxes, kind: str) -> RunningSandbox:
    return sandboxes[kind]


def ask(sandbox: RunningSandbox, question: Callable[[DaemonClient], Awaitable[T]]) -> T:
    async def query() -> T:
        async with DaemonClient(sandbox.backend.daemon_address(sandbox.record)) as inside:
            return await question(inside)

    return asyncio.run(asyncio.wait_for(query(), 20))


def services(sandbox: RunningSandbox) -> dict[str, dict[str, Any]]:
    return {service["name"]: service for service in ask(sandbox, DaemonClient.services)}


def all_ready(sandbox: RunningSandbox) -> dict[str, dict[str, Any]]:
    """Wait until everything of the image runs."""

    def ready() -> dict[str, dict[str, Any]]:
        found = services(sandbox)
        return found if all(service["ready"] for service in found.values()) else {}

    return eventually(ready, 30)


def drawn(sandbox: RunningSandbox) -> dict[str, Any]:
    """Wait until the window manager runs and the screen has content."""

    def seen() -> dict[str, Any]:
        result = sandbox.run(["/usr/bin/python3", "-c", LOOK])
        found: dict[str, Any] = json.loads(result.stdout) if result.exit_code == 0 else {}
        return found if found and found["manager"] and found["colours"] > 50 else {}

    return eventually(seen, 20)


def evaluate(sandbox: RunningSandbox, page: str, code: str) -> Any:
    """Run a script in a page of the sandbox's browser; return its result."""
    result = sandbox.run(["/usr/bin/python3", "-c", EVALUATE, "http://127.0.0.1:9222", page, code], timeout=40)
    assert result.exit_code == 0, result.stderr.decode(errors="replace")
    return json.loads(result.stdout)


@each
def test_all_services_of_screen_image_start(sandbox: RunningSandbox, kind: str) -> None:
    found = all_ready(sandbox)
    assert sorted(found) == sorted(UP[kind])
    assert {service["starts"] for service in found.values()} == {1}, found


@each
def test_display_has_content_and_serves_rfb(sandbox: RunningSandbox, kind: str) -> None:
    seen = drawn(sandbox)
    assert seen["manager"] == "Openbox"
    assert tuple(seen["size"]) == SIZES[kind]
    assert seen["greeting"] == "RFB 003.008\n"


def test_screen_has_requested_size(tmp_path: Path) -> None:
    with run_screen_sandbox(tmp_path, "desktop", env={"PADDOCK_SCREEN": "1024x600"}) as sandbox:
        assert tuple(drawn(sandbox)["size"]) == (1024, 600)


@each
def test_no_process_runs_as_root_or_listens_publicly(sandbox: RunningSandbox) -> None:
    all_ready(sandbox)
    assert set(sandbox.output("ps -eo user=").split()) == {"agent"}
    listening = sandbox.output("cat /proc/net/tcp /proc/net/tcp6")
    addresses = {line.split()[1] for line in listening.splitlines() if " 0A " in line}
    assert all(address.startswith(("0100007F:", f"{'0' * 24}01000000:")) for address in addresses), addresses


@pytest.mark.parametrize(
    ("asked", "family"),
    [
        ("sans-serif:charset=4f60", "WenQuanYi Micro Hei"),
        ("serif:charset=3042", "WenQuanYi Micro Hei"),
        ("monospace:charset=d55c", "WenQuanYi Micro Hei Mono"),
        ("sans-serif:charset=1f600", "Noto Color Emoji"),
        ("emoji", "Noto Color Emoji"),
        ("sans-serif", "Liberation Sans"),
        ("monospace", "DejaVu Sans Mono"),
    ],
)
def test_all_scripts_have_fonts(sandboxes: SessionSandboxes, asked: str, family: str) -> None:
    sandbox = sandboxes["desktop"]
    assert sandbox.output(["fc-match", "--format=%{family[0]}", asked]) == family


@each
def test_sandbox_start_copies_no_image_files(sandbox: RunningSandbox) -> None:
    all_ready(sandbox)
    assert asyncio.run(sandbox.backend.disk_used(sandbox.record)) < 64 * MIB


@each
def test_killed_display_restarts_with_window_manager(sandbox: RunningSandbox, kind: str) -> None:
    before = all_ready(sandbox)
    sandbox.output("pkill -KILL -x Xvnc")
    eventually(lambda: services(sandbox)["display"]["starts"] > before["display"]["starts"], 10)
    found = all_ready(sandbox)
    assert found["bus"]["starts"] == before["bus"]["starts"]
    seen = drawn(sandbox)
    assert (seen["manager"], tuple(seen["size"])) == ("Openbox", SIZES[kind])


def test_desktop_has_expected_programs(sandboxes: SessionSandboxes) -> None:
    sandbox = sandboxes["desktop"]
    sandbox.output("command -v lxterminal mousepad gpicview pcmanfm lxpanel")
    assert sandbox.output("xdg-mime query default text/plain").strip() == "org.xfce.mousepad.desktop"
    # Its dialog would ask for an unknown password.
    assert sandbox.run("command -v lxpolkit").exit_code != 0


def test_desktop_programs_appear_in_accessibility_tree(sandboxes: SessionSandboxes) -> None:
    sandbox = sandboxes["desktop"]
    all_ready(sandbox)
    sandbox.start("mousepad")
    eventually(lambda: "mousepad" in sandbox.output(["/usr/bin/python3", "-c", TREE]), 20)
    sandbox.output("pkill -x mousepad")


@browsers
def test_browser_runs_in_its_own_inner_sandbox(sandbox: RunningSandbox) -> None:
    all_ready(sandbox)
    version = json.loads(sandbox.output("curl -s --max-time 10 $PADDOCK_CDP/json/version"))
    assert version["Browser"].startswith("Chrome/")
    assert "--no-sandbox" not in sandbox.output("ps -eo args=")
    assert evaluate(sandbox, "chrome://sandbox", "document.body.innerText.includes('You are adequately sandboxed')")


@browsers
def test_browser_page_fills_the_screen(sandbox: RunningSandbox, kind: str) -> None:
    all_ready(sandbox)
    start = "file:///usr/share/paddock/start.html"
    width, height = evaluate(sandbox, start, "[innerWidth, innerHeight]")
    assert width == SIZES[kind][0]
    # A phone has no bar of tabs and addresses.
    assert height == SIZES[kind][1] if kind == "mobile" else 600 < height < SIZES[kind][1]


@browsers
def test_killed_browser_restarts(sandbox: RunningSandbox) -> None:
    before = all_ready(sandbox)["browser"]["starts"]
    sandbox.output("pkill -KILL -o -f /usr/lib/chromium/chromium")
    eventually(lambda: services(sandbox)["browser"]["starts"] > before, 10)
    all_ready(sandbox)
    assert "webSocketDebuggerUrl" in sandbox.output("curl -s --max-time 10 $PADDOCK_CDP/json/version")


def test_wine_runs_programs_from_its_drive(sandboxes: SessionSandboxes) -> None:
    sandbox = sandboxes["windows"]
    assert "Microsoft Windows 10" in sandbox.output("wine cmd /c ver")
    sandbox.output(r"wine cmd /c 'echo hello> C:\users\agent\Documents\note.txt'")
    assert sandbox.output("cat ~/Documents/note.txt").strip() == "hello"
    sandbox.output(r"wine cmd /c 'mkdir C:\work & echo hello> C:\work\note.txt'")
    assert sandbox.output(r"wine cmd /c 'type C:\work\note.txt'").strip() == "hello"


def test_wine_has_fonts_of_all_languages_and_shows_no_dialogs(sandboxes: SessionSandboxes) -> None:
    sandbox = sandboxes["windows"]
    fonts = sandbox.output(r"wine reg query 'HKCU\Software\Wine\Fonts\Replacements' /v SimSun")
    assert "WenQuanYi Micro Hei" in fonts
    crashes = sandbox.output(r"wine reg query 'HKCU\Software\Wine\WineDbg' /v ShowCrashDialog")
    assert "0x0" in crashes


def test_keymap_is_complete_and_can_be_changed(tmp_path: Path) -> None:
    """The display's keymap is put together when its image is built."""
    with run_screen_sandbox(tmp_path, "desktop") as sandbox:
        all_ready(sandbox)
        sandbox.output("Xvnc :7 -rfbport=-1 -rfbunixpath=/tmp/plain -SecurityTypes=None -ac >/tmp/plain.log 2>&1 &")
        eventually(lambda: sandbox.run("test -S /tmp/plain").exit_code == 0)
        # Parts have other names, and what a type does not speak of is its first level.
        keys = "xkbcomp -w 0 -xkb :{} - | sed -e '/^xkb_/s/ \".*//' -e '/ map.*= Level1;/d'"
        actual, reference = sandbox.output(keys.format(1)), sandbox.output(keys.format(7))
        assert actual == reference
        assert len(actual.splitlines()) > 1000
        sandbox.output("setxkbmap -display :1 de")
        assert "adiaeresis" in sandbox.output(keys.format(1))


@pytest.mark.parametrize("asked", [False, True])
def test_desktop_has_opengl_unless_disabled(tmp_path: Path, asked: bool) -> None:
    look = "from Xlib import display; print('GLX' in display.Display().list_extensions())"
    with run_screen_sandbox(tmp_path, "desktop", env={} if asked else {"PADDOCK_OPENGL": ""}) as sandbox:
        found = eventually(lambda: sandbox.run(["python3", "-c", look]).stdout.decode().strip(), 30)
        assert found == str(asked)
