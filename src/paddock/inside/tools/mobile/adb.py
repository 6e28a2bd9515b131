"""A real Android device or emulator, over the `adb` program."""

from __future__ import annotations

import base64
import re
import shlex

from ..results import Result, ToolError
from .bridge import Bridge
from .phone import Phone
from .uiautomator import parse

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
KEYBOARD = "com.android.adbkeyboard/.AdbIME"
NO_KEYBOARD = (
    "text beyond ASCII needs the app ADBKeyboard on the device (com.android.adbkeyboard), because Android's own "
    "`input text` cannot enter it; install that and try again"
)
MAX_APPS = 500
_PACKAGE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+")


class AdbPhone(Phone):
    """Whatever device PADDOCK_ADB names: a serial number, or HOST:PORT."""

    title = "Android"

    def __init__(self, device: str, name: str = "") -> None:
        self._bridge = Bridge(device, name)

    def size(self) -> tuple[int, int]:
        found = re.search(r"\bcur=(\d+)x(\d+)", self._bridge.shell("dumpsys window displays", check=False))
        if found is None:
            sizes = re.findall(r"(?:Physical|Override) size: (\d+)x(\d+)", self._bridge.shell("wm size"))
            if not sizes:
                raise ToolError("the device does not say how large its screen is")
            return int(sizes[-1][0]), int(sizes[-1][1])
        return int(found[1]), int(found[2])

    def tap(self, point: Point, times: int) -> Result:
        tap = f"input tap {_pixels(point)}"
        # Starting `input` takes longer than a double tap may; the second one starts while the first is under way.
        self._bridge.shell(tap if times == 1 else f"{tap} & sleep 0.1; {tap}; wait")
        return self._told(f"{'Tapped' if times == 1 else 'Double-tapped'} ({_pixels(point)}).")

    def hold(self, point: Point, seconds: float) -> Result:
        self._bridge.shell(f"input swipe {_pixels(point)} {_pixels(point)} {round(seconds * 1000)}")
        return self._told(f"Held ({_pixels(point)}) for {seconds:g} s.")

    def swipe(self, start: Point, end: Point, seconds: float) -> Result:
        self._bridge.shell(f"input swipe {_pixels(start)} {_pixels(end)} {round(seconds * 1000)}")
        return self._told(f"Swiped from ({_pixels(start)}) to ({_pixels(end)}).")

    def enter(self, text: str, submit: bool) -> Result:
        if all(" " <= character <= "~" or character in "\n\t" for character in text):
            self._type(text)
        else:
            self._broadcast(text)
        if submit:
            self._bridge.shell("input keyevent 66")
        return self._told(f"Entered {len(text)} characters{' and pressed enter' if submit else ''}.")

    def press(self, key: str) -> Result:
        self._bridge.shell(f"input keyevent {KEYCODES[key]}")
        return self._told(f"Pressed {key}.")

    def start(self, app: str) -> Result:
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", app):
            said = self._bridge.shell(f"am start -a android.intent.action.VIEW -d {shlex.quote(app)}", check=False)
        elif re.fullmatch(rf"{_PACKAGE.pattern}/[A-Za-z0-9_.$]+", app):
            said = self._bridge.shell(f"am start -n {shlex.quote(app)}", check=False)
        else:
            package = self._package(app)
            said = self._bridge.shell(f"monkey -p {package} -c android.intent.category.LAUNCHER 1", check=False)
            app = package
        wrong = re.search(r"^(Error.*|.*[Nn]o activities found.*|.*unable to resolve Intent.*)$", said, re.MULTILINE)
        if wrong:
            raise ToolError(f"{app[:200]} cannot be started: {wrong[0].strip(' *')[:200]}")
        return self._told(f"Started {app[:200]}.")

    def stop(self, app: str) -> Result:
        package = self._package(app.partition("/")[0])
        self._bridge.shell(f"am force-stop {package}")
        return self._told(f"Ended {package}.")

    def apps(self) -> list[dict[str, Any]]:
        own = set(self._packages("-3"))
        running = self._foreground().partition("/")[0]
        return [{"name": name, "own": name in own, "running": name == running} for name in self._packages()[:MAX_APPS]]

    def picture(self) -> tuple[bytes, str]:
        return self._bridge.output("screencap -p"), "image/png"

    def elements(self) -> list[dict[str, Any]]:
        return parse(self._bridge.output("uiautomator dump /dev/tty").decode("utf-8", "replace"))

    def rotate(self, orientation: str) -> Result:
        wanted = 0 if orientation == "portrait" else 1
        self._bridge.shell(f"settings put system accelerometer_rotation 0; settings put system user_rotation {wanted}")
        width, height = self.size()
        return self._told(f"The phone is held in {orientation}; the screen is {width}x{height}.")

    def _type(self, text: str) -> None:
        """Android's `input text` takes %s for a space, and knows no way to write a real %s: type it in two parts."""
        for line in re.split(r"(\n|\t|%(?=s))", text):
            if line in ("\n", "\t"):
                self._bridge.shell(f"input keyevent {66 if line == chr(10) else 61}")
            elif line:
                self._bridge.shell(f"input text {shlex.quote(line.replace(' ', '%s'))}")

    def _broadcast(self, text: str) -> None:
        if KEYBOARD not in self._bridge.shell("ime list -s -a", check=False).split():
            raise ToolError(NO_KEYBOARD)
        before = self._bridge.shell("settings get secure default_input_method", check=False).strip()
        if before != KEYBOARD:
            self._bridge.shell(f"ime enable {KEYBOARD} && ime set {KEYBOARD}")
        try:
            coded = base64.b64encode(text.encode("utf-8", "replace")).decode()
            said = self._bridge.shell(f"am broadcast -a ADB_INPUT_B64 --es msg {coded}")
        finally:
            if before != KEYBOARD and re.fullmatch(r"[A-Za-z0-9_.$]+/[A-Za-z0-9_.$]+", before):
                self._bridge.shell(f"ime set {before}", check=False)
        if "result=" not in said:
            raise ToolError(f"ADBKeyboard did not take the text: {said.strip()[:200]}")

    def _packages(self, more: str = "") -> list[str]:
        lines = self._bridge.shell(f"pm list packages {more}".strip()).splitlines()
        return sorted(line.partition(":")[2].strip() for line in lines if line.startswith("package:"))

    def _package(self, app: str) -> str:
        """The package that is meant: by its whole name, or by a part that only one has."""
        known = self._packages()
        if app in known:
            return app
        found = [name for name in known if app.lower() in name.lower()] if app else []
        if len(found) == 1 and _PACKAGE.fullmatch(found[0]):
            return found[0]
        if not found:
            raise ToolError(f"there is no app {app[:100]!r}; mobile_list_apps lists the packages that are there")
        raise ToolError(f"several apps have {app[:100]!r} in their name: {', '.join(found[:5])}; give the whole one")

    def _foreground(self) -> str:
        said = self._bridge.shell("dumpsys window | grep -E 'mCurrentFocus|mFocusedApp'", check=False)
        found = re.search(r"([A-Za-z0-9_.]+/[A-Za-z0-9_.$]+)", said)
        return found[1][:200] if found else ""

    def _told(self, done: str) -> Result:
        front = self._foreground()
        text = f"{done}\nIn front is {front}." if front else done
        return Result(text, structured={"app": front} if front else None)


def _pixels(point: Point) -> str:
    return f"{round(point[0])} {round(point[1])}"
