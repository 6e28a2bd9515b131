"""Chromium emulating a phone: screen size, touch and user agent; apps are web addresses."""

from __future__ import annotations

import json
import os
import re

from ..browser.browser_thread import BrowserThread
from ..browser.browser_tools import downloads_directory
from ..browser.navigation_tools import add_url_scheme, open_address
from ..tool_result import ToolCallResult, ToolError
from .display_resize import resize_sandbox_display
from .page_scripts import EDITABLE_SCRIPT, ELEMENTS_SCRIPT, MENU_SCRIPT, POSITION_SCRIPT, SCALE_SCRIPT
from .phone import MAX_ELEMENTS, MAX_LABEL, Phone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from ..browser.browser_session import BrowserSession, BrowserTab
    from ..browser.tool_factory import BrowserCall
    from ..tool_context import ToolContext
    from .phone import Point

SWIPE_STEP_SECONDS = 0.016
"""Seconds between the points of a swipe; pages ignore faster ones."""
MAX_SCROLL_CHECKS = 15
"""Tenths of a second to wait for scrolling to stop after a swipe."""
MAX_FOCUS_CHECKS = 10
"""Tenths of a second to wait for a tapped field to get the focus."""
LONG_PRESS_SECONDS = 0.5
"""Seconds after which a touch is a long press."""
MAX_REMARKS = 20
HOME_ADDRESS = "file:///usr/share/paddock/start.html"
PHONE_MODEL = "Pixel 8"
WEB_KEYS = {
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
    """The sandbox's browser, emulating a phone."""

    title = "Mobile (web)"

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._portrait_size = _configured_screen()
        self._is_landscape = False
        self._names: dict[Any, str] = {}
        self._dialog_text = ""
        self._remarks: list[str] = []
        self._browser = BrowserThread(downloads_directory(context), self._emulate_phone)
        self._browser.connect_ahead()

    def take_remarks(self) -> list[str]:
        remarks, self._remarks = self._remarks, []
        return remarks

    def screen_size(self) -> tuple[int, int]:
        width, height = self._portrait_size
        return (height, width) if self._is_landscape else (width, height)

    def tap(self, point: Point, times: int) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            import asyncio

            touch = await TouchInput.open_on(call)
            for number in range(times):
                if number:
                    await asyncio.sleep(0.06)
                await touch.send("touchStart", point)
                await touch.send("touchEnd")
            return f"{'Tapped' if times == 1 else 'Double-tapped'} ({point[0]:g}, {point[1]:g})."

        return self._run(work)

    def long_press(self, point: Point, seconds: float) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            import asyncio

            touch = await TouchInput.open_on(call)
            ask = {**touch.page_point(point), "duration": round(seconds * 1000), "gestureSourceType": "touch"}
            held = asyncio.ensure_future(touch.protocol.send("Input.synthesizeTapGesture", ask))
            if seconds >= LONG_PRESS_SECONDS:
                # A phone opens the context menu on a long press; desktop chromium does not.
                await asyncio.sleep(LONG_PRESS_SECONDS)
                await call.page.evaluate(MENU_SCRIPT, list(point))
            await held
            return f"Held ({point[0]:g}, {point[1]:g}) for {seconds:g} s."

        return self._run(work, 5 + seconds)

    def swipe(self, start: Point, end: Point, seconds: float) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            import asyncio

            steps = max(4, round(seconds / SWIPE_STEP_SECONDS))
            touch = await TouchInput.open_on(call)
            await touch.send("touchStart", start)
            try:
                for step in range(1, steps + 1):
                    part = step / steps
                    at = (start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
                    await asyncio.sleep(SWIPE_STEP_SECONDS)
                    await touch.send("touchMove", at)
            finally:
                await touch.send("touchEnd")
            # Scrolling continues after the swipe, and a tap meanwhile would only stop it.
            shown, before = await call.page.evaluate(POSITION_SCRIPT), None
            for _ in range(MAX_SCROLL_CHECKS):
                if shown == before:
                    break
                before = shown
                await asyncio.sleep(0.1)
                shown = await call.page.evaluate(POSITION_SCRIPT)
            return f"Swiped from ({start[0]:g}, {start[1]:g}) to ({end[0]:g}, {end[1]:g}). {_scroll_position(shown)}"

        return self._run(work, 5 + seconds)

    def enter_text(self, text: str, submit: bool) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            import asyncio

            if call.session.dialogs.pending:
                self._dialog_text = text
                return "The text is entered into the dialog when enter is pressed."
            # Pages handle a tap only after the double-tap delay, or when they are not busy.
            for _ in range(MAX_FOCUS_CHECKS):
                if await call.page.evaluate(EDITABLE_SCRIPT):
                    break
                await asyncio.sleep(0.1)
            else:
                raise ToolError("no field has the focus; tap one first")
            await call.page.keyboard.insert_text(text)
            if submit:
                await call.page.keyboard.press("Enter")
            return f"Entered {len(text)} characters{' and pressed enter' if submit else ''}."

        return self._run(work, answers_dialogs=True)

    def press_key(self, key: str) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            dialogs = call.session.dialogs
            if dialogs.pending and key in ("enter", "back", "escape"):
                answer, self._dialog_text = self._dialog_text, ""
                await dialogs.answer(key == "enter", answer or None)
                return f"Pressed {key}."
            if key == "back":
                # Without history, the page stays.
                await call.page.go_back(wait_until="commit", timeout=3000)
            elif key == "home":
                await self._go_home(call)
            elif key in WEB_KEYS:
                await call.page.keyboard.press(WEB_KEYS[key])
            else:
                known = ", ".join(("back", "home", *WEB_KEYS))
                raise ToolError(f"{self.title} has no key {key}; it has {known}")
            return f"Pressed {key}."

        return self._run(work, answers_dialogs=True)

    def start_app(self, app: str) -> ToolCallResult:
        address = self._app_address(app)

        async def work(call: BrowserCall) -> str:
            session = call.session
            for tab in session.tabs:
                if app != address and self._app_name(tab) == app:
                    await session.select_tab(tab)
                    return f"{app} is in front again."
            # Reuse the tab of the home page; other apps keep running in their tabs.
            tab = call.tab if call.tab.url in (HOME_ADDRESS, "about:blank") else await session.open_tab()
            self._names[tab.page] = app
            call.tab, call.page = tab, tab.page
            return f"Started {app[:200]}. " + await open_address(call, address)

        return self._run(work, 15, leaves_page=True)

    def stop_app(self, app: str) -> ToolCallResult:
        async def work(call: BrowserCall) -> str:
            session = call.session
            address = self._bookmarks().get(app) or app
            found = [tab for tab in session.tabs if self._app_name(tab) == app or tab.url.startswith(address)]
            if not found:
                raise ToolError(f"{app[:200]} is not running; mobile_list_apps lists the running apps")
            for tab in found:
                if len(session.tabs) == 1:
                    self._names.pop(tab.page, None)
                    await self._go_home(call)
                else:
                    await tab.page.close()
            self._names = {page: name for page, name in self._names.items() if not page.is_closed()}
            return f"Ended {app[:200]}."

        return self._run(work, leaves_page=True)

    def list_apps(self) -> list[dict[str, Any]]:
        async def work(session: BrowserSession) -> list[dict[str, Any]]:
            known = self._bookmarks()
            running = {self._app_name(tab): tab.url for tab in session.tabs}
            listed = [{"name": name, "url": url, "running": name in running} for name, url in known.items()]
            return listed + [
                {"name": name, "url": url, "running": True}
                for name, url in running.items()
                if name not in known and url not in (HOME_ADDRESS, "about:blank")
            ]

        return self._browser.run_in_thread(work, 5, self._context.caller)

    def screenshot(self) -> tuple[bytes, str]:
        async def work(call: BrowserCall) -> ToolCallResult:
            from binascii import a2b_base64

            protocol = await call.tab.protocol()
            answer = await protocol.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
            return ToolCallResult(images=[(a2b_base64(answer["data"]), "image/png")])

        result = self._run(work, acts=False)
        if not result.images:
            raise ToolError(result.text)
        self._keep_remarks(result)
        return result.images[0]

    def visible_elements(self) -> list[dict[str, Any]]:
        async def work(call: BrowserCall) -> ToolCallResult:
            return ToolCallResult(
                structured={"elements": await call.page.evaluate(ELEMENTS_SCRIPT, [MAX_ELEMENTS, MAX_LABEL])}
            )

        result = self._run(work, acts=False)
        found = (result.structured or {}).get("elements")
        if result.error or not isinstance(found, list):
            raise ToolError(result.text or "the page did not return its elements; try again")
        self._keep_remarks(result)
        return [one for one in found[:MAX_ELEMENTS] if _is_valid_element(one)]

    def rotate(self, orientation: str) -> ToolCallResult:
        self._is_landscape = orientation == "landscape"
        width, height = self.screen_size()
        resize_sandbox_display(width, height)

        async def work(call: BrowserCall) -> str:
            for tab in list(call.session.tabs):
                await self._emulate_phone(call.session, tab.page)
            return f"The phone is held in {orientation}; the screen is {width}x{height}."

        return self._run(work)

    def _keep_remarks(self, result: ToolCallResult) -> None:
        """Keep messages of a read-only call for the next result."""
        self._remarks = [*self._remarks, *filter(None, result.text.split("\n"))][-MAX_REMARKS:]

    def _run(
        self,
        work: Callable[[BrowserCall], Awaitable[str | ToolCallResult]],
        seconds: float = 5,
        *,
        answers_dialogs: bool = False,
        leaves_page: bool = False,
        acts: bool = True,
    ) -> ToolCallResult:
        async def run_in_session(session: BrowserSession) -> ToolCallResult:
            from ..browser.call_runner import run_browser_call

            dismiss_reason = "" if answers_dialogs else "something else was done before it was answered"
            return await run_browser_call(self._context, session, work, {}, seconds, dismiss_reason, leaves_page, acts)

        result = self._browser.run_in_thread(run_in_session, seconds, self._context.caller)
        result.text = result.text.replace("Answer with browser_dialog", "mobile_send_key enter accepts, back dismisses")
        return result

    async def _emulate_phone(self, session: BrowserSession, page: Any) -> None:
        """Emulate a phone in a page; this lasts as long as the connection."""
        tab = session.tab_of(page)
        if tab is None:
            return
        protocol = await tab.protocol()
        width, height = self.screen_size()
        turned = (
            {"type": "landscapePrimary", "angle": 90} if self._is_landscape else {"type": "portraitPrimary", "angle": 0}
        )
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        version = (await protocol.send("Browser.getVersion"))["product"].partition("/")[2] or "120.0.0.0"
        for method, parameters in (
            ("Emulation.setDeviceMetricsOverride", {**metrics, "screenOrientation": turned}),
            ("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5}),
            ("Emulation.setEmitTouchEventsForMouse", {"enabled": True, "configuration": "mobile"}),
            ("Emulation.setUserAgentOverride", phone_user_agent(version)),
        ):
            await protocol.send(method, parameters)
        # Windows opened later have tab and address bars; make them full screen.
        window = await protocol.send("Browser.getWindowForTarget")
        if window.get("bounds", {}).get("windowState") != "fullscreen":
            ask = {"windowId": window["windowId"], "bounds": {"windowState": "fullscreen"}}
            await protocol.send("Browser.setWindowBounds", ask)

    def _app_name(self, tab: BrowserTab) -> str:
        """Return the name of the app in a tab, or its address."""
        if tab.url in (HOME_ADDRESS, "about:blank"):
            self._names.pop(tab.page, None)
        return self._names.get(tab.page) or tab.url

    async def _go_home(self, call: BrowserCall) -> None:
        session = call.session
        home = next((tab for tab in session.tabs if tab.url == HOME_ADDRESS), None)
        if home is None:
            home = call.tab if len(session.tabs) == 1 else await session.open_tab()
            await home.page.goto(HOME_ADDRESS, wait_until="commit", timeout=3000)
        await session.select_tab(home)

    def _bookmarks(self) -> dict[str, str]:
        """Return app names and addresses from the JSON file that PADDOCK_APPS names, or ~/apps.json."""
        path = os.environ.get("PADDOCK_APPS") or os.path.expanduser("~/apps.json")
        try:
            with open(path, encoding="utf-8") as stream:
                found = json.loads(stream.read(1024 * 1024))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {str(name)[:100]: str(address)[:2000] for name, address in list(found.items())[:200]}

    def _app_address(self, app: str) -> str:
        known = self._bookmarks()
        for name, address in known.items():
            if name.lower() == app.strip().lower():
                return add_url_scheme(address)
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", app) or "." in app or "/" in app:
            return add_url_scheme(app)
        names = ", ".join(list(known)[:20]) or "none"
        raise ToolError(f"there is no app {app[:100]!r} in {self.title}; there are: {names}; or use an address")


class TouchInput:
    """Touch input for a page. Converts screen pixels to page pixels, which differ on zoomed-out desktop pages."""

    def __init__(self, protocol: Any, scale: float) -> None:
        self.protocol = protocol
        self._scale = scale

    @classmethod
    async def open_on(cls, call: BrowserCall) -> TouchInput:
        scale = await call.page.evaluate(SCALE_SCRIPT)
        return cls(await call.tab.protocol(), scale if isinstance(scale, (int, float)) and scale > 0 else 1)

    def page_point(self, point: Point) -> dict[str, float]:
        return {"x": point[0] / self._scale, "y": point[1] / self._scale}

    async def send(self, kind: str, *points: Point) -> None:
        touch_points = [{**self.page_point(point), "id": 0} for point in points]
        await self.protocol.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touch_points})


def phone_user_agent(version: str) -> dict[str, Any]:
    """Return chromium's user agent override for a phone."""
    major = version.partition(".")[0]
    brands = [{"brand": "Chromium", "version": major}, {"brand": "Not)A;Brand", "version": "8"}]
    words = f"(Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Mobile Safari/537.36"
    metadata = {
        "brands": brands,
        "platform": "Android",
        "platformVersion": "14",
        "architecture": "",
        "model": PHONE_MODEL,
    }
    return {
        "userAgent": f"Mozilla/5.0 {words}",
        "platform": "Linux armv81",
        "userAgentMetadata": {**metadata, "mobile": True},
    }


def _configured_screen() -> tuple[int, int]:
    found = re.fullmatch(r"(\d{2,5})x(\d{2,5})", os.environ.get("PADDOCK_SCREEN", ""))
    return (int(found[1]), int(found[2])) if found else (412, 915)


def _scroll_position(shown: Any) -> str:
    if not isinstance(shown, list) or len(shown) != 3:
        return ""
    return f"The page shows {shown[0]} to {shown[1]} of {shown[2]} pixels."


def _is_valid_element(one: Any) -> bool:
    """True if an element has the shape the script returns; pages can tamper with it."""
    if not isinstance(one, dict) or not isinstance(one.get("text"), str) or not isinstance(one.get("role"), str):
        return False
    bounds = one.get("bounds")
    return isinstance(bounds, list) and len(bounds) == 4 and all(isinstance(number, int) for number in bounds)
