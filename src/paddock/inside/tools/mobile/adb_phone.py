"""A real Android device or emulator, controlled with the `adb` program."""

from __future__ import annotations

import base64
import re
import shlex

from ..tool_result import ToolCallResult, ToolError
from .adb_client import AdbClient
from .phone import Phone
from .uiautomator_dump import parse_uiautomator_dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .phone import Point

KEYCODES = {
    "back": 4,
    "home": 3,
    "app_switch": 187,
    "menu": 82,
    "enter": 66,
    "delete": 67,
    "tab": 61,
    "escape": 111,
    "space": 62,
    "search": 84,
    "up": 19,
    "down": 20,
    "left": 21,
    "right": 22,
    "page_up": 92,
    "page_down": 93,
    "volume_up": 24,
    "volume_down": 25,
    "power": 26,
}
KEYBOARD_APP = "com.android.adbkeyboard/.AdbIME"
NO_KEYBOARD_MESSAGE = (
    "text beyond ASCII needs the app ADBKeyboard on the device (com.android.adbkeyboard), because Android's own "
    "`input text` cannot enter it; install it and try again"
)
MAX_APPS = 500
_PACKAGE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+")


class AdbPhone(Phone):
    """The device that PADDOCK_ADB names by serial number or HOST:PORT."""

    title = "Android"

    def __init__(self, device: str, name: str = "") -> None:
        self._client = AdbClient(device, name)

    def screen_size(self) -> tuple[int, int]:
        found = re.search(r"\bcur=(\d+)x(\d+)", self._client.run_shell("dumpsys window displays", check=False))
        if found is None:
            sizes = re.findall(r"(?:Physical|Override) size: (\d+)x(\d+)", self._client.run_shell("wm size"))
            if not sizes:
                raise ToolError("the device does not report its screen size")
            return int(sizes[-1][0]), int(sizes[-1][1])
        return int(found[1]), int(found[2])

    def tap(self, point: Point, times: int) -> ToolCallResult:
        tap = f"input tap {_pixels(point)}"
        # Starting `input` takes longer than a double tap may; the second one starts while the first still runs.
        self._client.run_shell(tap if times == 1 else f"{tap} & sleep 0.1; {tap}; wait")
        return self._with_app_in_front(f"{'Tapped' if times == 1 else 'Double-tapped'} ({_pixels(point)}).")

    def long_press(self, point: Point, seconds: float) -> ToolCallResult:
        self._client.run_shell(f"input swipe {_pixels(point)} {_pixels(point)} {round(seconds * 1000)}")
        return self._with_app_in_front(f"Held ({_pixels(point)}) for {seconds:g} s.")

    def swipe(self, start: Point, end: Point, seconds: float) -> ToolCallResult:
        self._client.run_shell(f"input swipe {_pixels(start)} {_pixels(end)} {round(seconds * 1000)}")
        return self._with_app_in_front(f"Swiped from ({_pixels(start)}) to ({_pixels(end)}).")

    def enter_text(self, text: str, submit: bool) -> ToolCallResult:
        if all(" " <= character <= "~" or character in "\n\t" for character in text):
            self._type(text)
        else:
            self._broadcast(text)
        if submit:
            self._client.run_shell("input keyevent 66")
        return self._with_app_in_front(f"Entered {len(text)} characters{' and pressed enter' if submit else ''}.")

    def press_key(self, key: str) -> ToolCallResult:
        self._client.run_shell(f"input keyevent {KEYCODES[key]}")
        return self._with_app_in_front(f"Pressed {key}.")

    def start_app(self, app: str) -> ToolCallResult:
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", app):
            output = self._client.run_shell(
                f"am start -a android.intent.action.VIEW -d {shlex.quote(app)}", check=False
            )
        elif re.fullmatch(rf"{_PACKAGE.pattern}/[A-Za-z0-9_.$]+", app):
            output = self._client.run_shell(f"am start -n {shlex.quote(app)}", check=False)
        else:
            package = self._package(app)
            output = self._client.run_shell(f"monkey -p {package} -c android.intent.category.LAUNCHER 1", check=False)
            app = package
        error = re.search(r"^(Error.*|.*[Nn]o activities found.*|.*unable to resolve Intent.*)$", output, re.MULTILINE)
        if error:
            raise ToolError(f"{app[:200]} cannot be started: {error[0].strip(' *')[:200]}")
        return self._with_app_in_front(f"Started {app[:200]}.")

    def stop_app(self, app: str) -> ToolCallResult:
        package = self._package(app.partition("/")[0])
        self._client.run_shell(f"am force-stop {package}")
        return self._with_app_in_front(f"Ended {package}.")

    def list_apps(self) -> list[dict[str, Any]]:
        own = set(self._packages("-3"))
        running = self._foreground().partition("/")[0]
        return [{"name": name, "own": name in own, "running": name == running} for name in self._packages()[:MAX_APPS]]

    def screenshot(self) -> tuple[bytes, str]:
        return self._client.read_output("screencap -p"), "image/png"

    def visible_elements(self) -> list[dict[str, Any]]:
        return parse_uiautomator_dump(self._client.read_output("uiautomator dump /dev/tty").decode("utf-8", "replace"))

    def rotate(self, orientation: str) -> ToolCallResult:
        wanted = 0 if orientation == "portrait" else 1
        self._client.run_shell(
            f"settings put system accelerometer_rotation 0; settings put system user_rotation {wanted}"
        )
        width, height = self.screen_size()
        return self._with_app_in_front(f"The phone is held in {orientation}; the screen is {width}x{height}.")

    def _type(self, text: str) -> None:
        """Type ASCII text. `input text` reads %s as a space and has no escape for it, so a literal %s is split."""
        for line in re.split(r"(\n|\t|%(?=s))", text):
            if line in ("\n", "\t"):
                self._client.run_shell(f"input keyevent {66 if line == chr(10) else 61}")
            elif line:
                self._client.run_shell(f"input text {shlex.quote(line.replace(' ', '%s'))}")

    def _broadcast(self, text: str) -> None:
        if KEYBOARD_APP not in self._client.run_shell("ime list -s -a", check=False).split():
            raise ToolError(NO_KEYBOARD_MESSAGE)
        before = self._client.run_shell("settings get secure default_input_method", check=False).strip()
        if before != KEYBOARD_APP:
            self._client.run_shell(f"ime enable {KEYBOARD_APP} && ime set {KEYBOARD_APP}")
        try:
            coded = base64.b64encode(text.encode("utf-8", "replace")).decode()
            output = self._client.run_shell(f"am broadcast -a ADB_INPUT_B64 --es msg {coded}")
        finally:
            if before != KEYBOARD_APP and re.fullmatch(r"[A-Za-z0-9_.$]+/[A-Za-z0-9_.$]+", before):
                self._client.run_shell(f"ime set {before}", check=False)
        if "result=" not in output:
            raise ToolError(f"ADBKeyboard did not take the text: {output.strip()[:200]}")

    def _packages(self, more: str = "") -> list[str]:
        lines = self._client.run_shell(f"pm list packages {more}".strip()).splitlines()
        return sorted(line.partition(":")[2].strip() for line in lines if line.startswith("package:"))

    def _package(self, app: str) -> str:
        """Return the package with this name, or the only one with a name that contains it."""
        known = self._packages()
        if app in known:
            return app
        found = [name for name in known if app.lower() in name.lower()] if app else []
        if len(found) == 1 and _PACKAGE.fullmatch(found[0]):
            return found[0]
        if not found:
            raise ToolError(f"there is no app {app[:100]!r}; mobile_list_apps lists the installed packages")
        raise ToolError(f"several apps have {app[:100]!r} in their name: {', '.join(found[:5])}; use the full name")

    def _foreground(self) -> str:
        output = self._client.run_shell("dumpsys window | grep -E 'mCurrentFocus|mFocusedApp'", check=False)
        found = re.search(r"([A-Za-z0-9_.]+/[A-Za-z0-9_.$]+)", output)
        return found[1][:200] if found else ""

    def _with_app_in_front(self, done: str) -> ToolCallResult:
        foreground_app = self._foreground()
        text = f"{done}\nThe app in front is {foreground_app}." if foreground_app else done
        return ToolCallResult(text, structured={"app": foreground_app} if foreground_app else None)


def _pixels(point: Point) -> str:
    return f"{round(point[0])} {round(point[1])}"
