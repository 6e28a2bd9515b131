"""Chromium as a phone: its size, its touches, its name; apps are addresses."""

from __future__ import annotations

import json
import os
import re

from ..browser import downloads_directory
from ..browser.engine import Engine
from ..browser.navigation import address_of, navigate
from ..results import Result, ToolError
from .phone import MAX_ELEMENTS, MAX_LABEL, Phone
from .screen_size import resize
from .scripts import EDITABLE, ELEMENTS, MENU, POSITION, SCALE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from ..browser.kit import Call
    from ..browser.session import Session, Tab
    from ..context import Context
    from .phone import Point

PACE = 0.016
"""Seconds between the points of a swipe; pages take a faster one for none."""
ROLLS = 15
"""Tenths of a second that a page may roll on after a swipe before its place is told."""
FOCUSES = 10
"""Tenths of a second within which a field that was tapped gets the focus."""
LONG = 0.5
"""Seconds after which a touch is a long press."""
MAX_REMARKS = 20
HOME = "file:///usr/share/paddock/start.html"
MODEL = "Pixel 8"
KEYS = {
    "enter": "Enter",
    "delete": "Backspace",
    "tab": "Tab",
    "escape": "Escape",
    "space": "Space",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "page_up": "PageUp",
    "page_down": "PageDown",
}


class WebPhone(Phone):
    """The browser of the box, made to look and feel like a phone's."""

    title = "Mobile (web)"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._upright = _screen()
        self._turned = False
        self._names: dict[Any, str] = {}
        self._said = ""
        self._remarks: list[str] = []
        self._engine = Engine(downloads_directory(context), self._dress)
        self._engine.warm()

    def remarks(self) -> list[str]:
        told, self._remarks = self._remarks, []
        return told

    def size(self) -> tuple[int, int]:
        width, height = self._upright
        return (height, width) if self._turned else (width, height)

    def tap(self, point: Point, times: int) -> Result:
        async def work(call: Call) -> str:
            import asyncio

            touch = await Touch.on(call)
            for number in range(times):
                if number:
                    await asyncio.sleep(0.06)
                await touch.send("touchStart", point)
                await touch.send("touchEnd")
            return f"{'Tapped' if times == 1 else 'Double-tapped'} ({point[0]:g}, {point[1]:g})."

        return self._do(work)

    def hold(self, point: Point, seconds: float) -> Result:
        async def work(call: Call) -> str:
            import asyncio

            touch = await Touch.on(call)
            ask = {**touch.place(point), "duration": round(seconds * 1000), "gestureSourceType": "touch"}
            held = asyncio.ensure_future(touch.protocol.send("Input.synthesizeTapGesture", ask))
            if seconds >= LONG:
                # What a long press asks for on a phone, and what chromium on a computer does not ask for.
                await asyncio.sleep(LONG)
                await call.page.evaluate(MENU, list(point))
            await held
            return f"Held ({point[0]:g}, {point[1]:g}) for {seconds:g} s."

        return self._do(work, 5 + seconds)

    def swipe(self, start: Point, end: Point, seconds: float) -> Result:
        async def work(call: Call) -> str:
            import asyncio

            steps = max(4, round(seconds / PACE))
            touch = await Touch.on(call)
            await touch.send("touchStart", start)
            try:
                for step in range(1, steps + 1):
                    part = step / steps
                    at = (start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
                    await asyncio.sleep(PACE)
                    await touch.send("touchMove", at)
            finally:
                await touch.send("touchEnd")
            # What was thrown rolls on for a moment, and a tap while it does only stops it.
            shown, before = await call.page.evaluate(POSITION), None
            for _ in range(ROLLS):
                if shown == before:
                    break
                before = shown
                await asyncio.sleep(0.1)
                shown = await call.page.evaluate(POSITION)
            return f"Swiped from ({start[0]:g}, {start[1]:g}) to ({end[0]:g}, {end[1]:g}). {_position(shown)}"

        return self._do(work, 5 + seconds)

    def enter(self, text: str, submit: bool) -> Result:
        async def work(call: Call) -> str:
            import asyncio

            if call.session.dialogs.pending:
                self._said = text
                return "The text will be given to the dialog by enter."
            # Pages take a tap for one only when no second follows, or when they come to it.
            for _ in range(FOCUSES):
                if await call.page.evaluate(EDITABLE):
                    break
                await asyncio.sleep(0.1)
            else:
                raise ToolError("no field has the focus; tap one first")
            await call.page.keyboard.insert_text(text)
            if submit:
                await call.page.keyboard.press("Enter")
            return f"Entered {len(text)} characters{' and pressed enter' if submit else ''}."

        return self._do(work, answers_dialogs=True)

    def press(self, key: str) -> Result:
        async def work(call: Call) -> str:
            dialogs = call.session.dialogs
            if dialogs.pending and key in ("enter", "back", "escape"):
                said, self._said = self._said, ""
                await dialogs.answer(key == "enter", said or None)
                return f"Pressed {key}."
            if key == "back":
                # A page that nothing came before stays, as an app does that has no way back.
                await call.page.go_back(wait_until="commit", timeout=3000)
            elif key == "home":
                await self._go_home(call)
            elif key in KEYS:
                await call.page.keyboard.press(KEYS[key])
            else:
                known = ", ".join(("back", "home", *KEYS))
                raise ToolError(f"{self.title} has no key {key}; it has {known}")
            return f"Pressed {key}."

        return self._do(work, answers_dialogs=True)

    def start(self, app: str) -> Result:
        address = self._address(app)

        async def work(call: Call) -> str:
            session = call.session
            for tab in session.tabs:
                if app != address and self._name(tab) == app:
                    await session.select(tab)
                    return f"{app} is in front again."
            # The home page makes room; what runs besides goes on behind.
            tab = call.tab if call.tab.url in (HOME, "about:blank") else await session.open_tab()
            self._names[tab.page] = app
            call.tab, call.page = tab, tab.page
            return f"Started {app[:200]}. " + await navigate(call, address)

        return self._do(work, 15, quiet=True)

    def stop(self, app: str) -> Result:
        async def work(call: Call) -> str:
            session = call.session
            address = self._bookmarks().get(app) or app
            found = [tab for tab in session.tabs if self._name(tab) == app or tab.url.startswith(address)]
            if not found:
                raise ToolError(f"{app[:200]} is not running; mobile_list_apps says what is")
            for tab in found:
                if len(session.tabs) == 1:
                    self._names.pop(tab.page, None)
                    await self._go_home(call)
                else:
                    await tab.page.close()
            self._names = {page: name for page, name in self._names.items() if not page.is_closed()}
            return f"Ended {app[:200]}."

        return self._do(work, quiet=True)

    def apps(self) -> list[dict[str, Any]]:
        async def work(session: Session) -> list[dict[str, Any]]:
            known = self._bookmarks()
            running = {self._name(tab): tab.url for tab in session.tabs}
            listed = [{"name": name, "url": url, "running": name in running} for name, url in known.items()]
            return listed + [
                {"name": name, "url": url, "running": True}
                for name, url in running.items()
                if name not in known and url not in (HOME, "about:blank")
            ]

        return self._engine.call(work, 5, self._context.caller)

    def picture(self) -> tuple[bytes, str]:
        async def work(call: Call) -> Result:
            from binascii import a2b_base64

            protocol = await call.tab.protocol()
            answer = await protocol.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
            return Result(images=[(a2b_base64(answer["data"]), "image/png")])

        result = self._do(work, hands=False)
        if not result.images:
            raise ToolError(result.text)
        self._remark(result)
        return result.images[0]

    def elements(self) -> list[dict[str, Any]]:
        async def work(call: Call) -> Result:
            return Result(structured={"elements": await call.page.evaluate(ELEMENTS, [MAX_ELEMENTS, MAX_LABEL])})

        result = self._do(work, hands=False)
        found = (result.structured or {}).get("elements")
        if result.error or not isinstance(found, list):
            raise ToolError(result.text or "the page does not say what is on it; try again")
        self._remark(result)
        return [one for one in found[:MAX_ELEMENTS] if _sound(one)]

    def rotate(self, orientation: str) -> Result:
        self._turned = orientation == "landscape"
        width, height = self.size()
        resize(width, height)

        async def work(call: Call) -> str:
            for tab in list(call.session.tabs):
                await self._dress(call.session, tab.page)
            return f"The phone is held in {orientation}; the screen is {width}x{height}."

        return self._do(work)

    def _remark(self, looked: Result) -> None:
        """Keep what happened while somebody only looked, for the result of what they looked for."""
        self._remarks = [*self._remarks, *filter(None, looked.text.split("\n"))][-MAX_REMARKS:]

    def _do(
        self,
        work: Callable[[Call], Awaitable[str | Result]],
        seconds: float = 5,
        *,
        answers_dialogs: bool = False,
        quiet: bool = False,
        hands: bool = True,
    ) -> Result:
        async def inside(session: Session) -> Result:
            from ..browser.running import run

            calm = "" if answers_dialogs else "something else was done before it was answered"
            return await run(self._context, session, work, {}, seconds, calm, quiet, hands)

        result = self._engine.call(inside, seconds, self._context.caller)
        result.text = result.text.replace("Answer with browser_dialog", "mobile_send_key enter accepts, back dismisses")
        return result

    async def _dress(self, session: Session, page: Any) -> None:
        """Make a page believe that it is on a phone; it does so for as long as we stay connected."""
        tab = session.tab_of(page)
        if tab is None:
            return
        protocol = await tab.protocol()
        width, height = self.size()
        turned = {"type": "landscapePrimary", "angle": 90} if self._turned else {"type": "portraitPrimary", "angle": 0}
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        version = (await protocol.send("Browser.getVersion"))["product"].partition("/")[2] or "120.0.0.0"
        for method, parameters in (
            ("Emulation.setDeviceMetricsOverride", {**metrics, "screenOrientation": turned}),
            ("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5}),
            ("Emulation.setEmitTouchEventsForMouse", {"enabled": True, "configuration": "mobile"}),
            ("Emulation.setUserAgentOverride", user_agent(version)),
        ):
            await protocol.send(method, parameters)
        # A window that was opened later has a bar of tabs and an address, which a phone's screen has no room for.
        window = await protocol.send("Browser.getWindowForTarget")
        if window.get("bounds", {}).get("windowState") != "fullscreen":
            ask = {"windowId": window["windowId"], "bounds": {"windowState": "fullscreen"}}
            await protocol.send("Browser.setWindowBounds", ask)

    def _name(self, tab: Tab) -> str:
        """What was started there, as long as it is there."""
        if tab.url in (HOME, "about:blank"):
            self._names.pop(tab.page, None)
        return self._names.get(tab.page) or tab.url

    async def _go_home(self, call: Call) -> None:
        session = call.session
        home = next((tab for tab in session.tabs if tab.url == HOME), None)
        if home is None:
            home = call.tab if len(session.tabs) == 1 else await session.open_tab()
            await home.page.goto(HOME, wait_until="commit", timeout=3000)
        await session.select(home)

    def _bookmarks(self) -> dict[str, str]:
        """Names of apps and their addresses: a JSON object in the file that PADDOCK_APPS names, or in the home."""
        path = os.environ.get("PADDOCK_APPS") or os.path.expanduser("~/apps.json")
        try:
            with open(path, encoding="utf-8") as stream:
                found = json.loads(stream.read(1024 * 1024))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {str(name)[:100]: str(address)[:2000] for name, address in list(found.items())[:200]}

    def _address(self, app: str) -> str:
        known = self._bookmarks()
        for name, address in known.items():
            if name.lower() == app.strip().lower():
                return address_of(address)
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", app) or "." in app or "/" in app:
            return address_of(app)
        names = ", ".join(list(known)[:20]) or "none"
        raise ToolError(f"there is no app {app[:100]!r} in {self.title}; there are: {names}; or give an address")


class Touch:
    """A finger on a page. Chromium counts in the page's own pixels, which are smaller on one made for computers."""

    def __init__(self, protocol: Any, scale: float) -> None:
        self.protocol = protocol
        self._scale = scale

    @classmethod
    async def on(cls, call: Call) -> Touch:
        scale = await call.page.evaluate(SCALE)
        return cls(await call.tab.protocol(), scale if isinstance(scale, (int, float)) and scale > 0 else 1)

    def place(self, point: Point) -> dict[str, float]:
        return {"x": point[0] / self._scale, "y": point[1] / self._scale}

    async def send(self, kind: str, *points: Point) -> None:
        places = [{**self.place(point), "id": 0} for point in points]
        await self.protocol.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})


def user_agent(version: str) -> dict[str, Any]:
    """How chromium calls itself on a phone."""
    major = version.partition(".")[0]
    brands = [{"brand": "Chromium", "version": major}, {"brand": "Not)A;Brand", "version": "8"}]
    words = f"(Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Mobile Safari/537.36"
    about = {"brands": brands, "platform": "Android", "platformVersion": "14", "architecture": "", "model": MODEL}
    return {
        "userAgent": f"Mozilla/5.0 {words}",
        "platform": "Linux armv81",
        "userAgentMetadata": {**about, "mobile": True},
    }


def _screen() -> tuple[int, int]:
    found = re.fullmatch(r"(\d{2,5})x(\d{2,5})", os.environ.get("PADDOCK_SCREEN", ""))
    return (int(found[1]), int(found[2])) if found else (412, 915)


def _position(shown: Any) -> str:
    if not isinstance(shown, list) or len(shown) != 3:
        return ""
    return f"The page shows {shown[0]} to {shown[1]} of {shown[2]} pixels."


def _sound(one: Any) -> bool:
    """Whether an element is what our script would make; pages may meddle with it."""
    if not isinstance(one, dict) or not isinstance(one.get("text"), str) or not isinstance(one.get("role"), str):
        return False
    bounds = one.get("bounds")
    return isinstance(bounds, list) and len(bounds) == 4 and all(isinstance(number, int) for number in bounds)
