"""The mobile tools on chromium as a phone, in a real sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Iterator

import pytest

from paddock.errors import InvalidInput
from paddock.model.screens import Screenshot
from paddock.sandbox.daemon.client import DaemonClient
from tests.contract.backends.support import eventually
from tests.support.browser_sandboxes import PAGES_URL, BrowserSandbox, run_browser_sandbox

PHONE = f"{PAGES_URL}/phone.html"
SIZE = (412, 915)


@pytest.fixture(scope="module")
def browser_sandbox() -> Iterator[BrowserSandbox]:
    with run_browser_sandbox("mobile", env={"PADDOCK_APPS": "/workspace/apps.json"}) as made:
        made.sandbox.write(
            "/workspace/apps.json", json.dumps({"Phone": PHONE, "Forms": f"{PAGES_URL}/form.html"}).encode()
        )
        yield made


@pytest.fixture
def phone(browser_sandbox: BrowserSandbox) -> Iterator[BrowserSandbox]:
    """A phone that shows its home page, with nothing else running."""
    yield browser_sandbox
    for app in browser_sandbox.do("mobile_list_apps").data["apps"]:
        if app["running"]:
            browser_sandbox.do("mobile_stop_app", app=app["name"])


def on_screen(desk: BrowserSandbox) -> Screenshot:
    """Return a screenshot of the display itself."""

    async def take_screenshot() -> Screenshot:
        async with DaemonClient(desk.sandbox.backend.daemon_address(desk.sandbox.record)) as inside:
            shot = await inside.screenshot({"format": "png"})
            assert shot is not None
            return shot

    return asyncio.run(take_screenshot())


def test_phone_opens_a_page_taps_swipes_and_types(phone: BrowserSandbox) -> None:
    assert phone.do("mobile_start_app", app=PHONE).data["title"] == "Phone"
    assert phone.do("mobile_click", text="Tap me").data["title"] == "tapped"
    assert 'The focus is now on input "Write here"' in phone.do("mobile_click", text="Write here").text
    phone.do("mobile_input_text", value="你好 😀 𐍈")
    assert phone.do("mobile_ui_elements", contains="你好 😀 𐍈").data["elements"][0]["editable"]
    for _ in range(15):
        if phone.do("mobile_ui_elements", contains="The very end").data["elements"]:
            break
        phone.do("mobile_swipe", direction="up")
    phone.do("mobile_wait_for", text="The very end")
    assert phone.do("mobile_click", text="The very end").data["title"] == "end"


def test_tap_sends_touch_events(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=f"{PAGES_URL}/touch.html")
    phone.do("mobile_click", x=200, y=300)
    seen = phone.do("mobile_ui_elements", contains="touchstart").data["elements"]
    assert seen and seen[0]["text"] == "touchstart 200,300 5 mobile"


def test_double_tap_and_long_press(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=PHONE)
    assert phone.do("mobile_double_click", text="Twice").data["title"] == "double"
    assert phone.do("mobile_long_press", text="pad").data["title"] == "held"


def test_desktop_pages_are_scaled_and_tapped_correctly(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app="Forms")
    name = phone.do("mobile_ui_elements", contains="Name").data["elements"][1]
    assert name["role"] == "textbox" and name["bounds"][2] < SIZE[0]
    phone.do("mobile_click", x=name["bounds"][0] + 5, y=name["bounds"][1] + 3)
    phone.do("mobile_input_text", value="Li", submit=True)
    phone.do("mobile_wait_for", text="Welcome, Li")


def test_screenshots_have_screen_size_and_map_to_points(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=PHONE)
    whole = phone.do("mobile_screenshot", format="png")
    data = base64.b64decode(whole.images[0]["data"])
    assert struct.unpack(">II", data[16:24]) == SIZE
    half = phone.do("mobile_screenshot", scale=0.5)
    assert (half.data["width"], half.data["height"]) == (206, 458)
    left, top, right, bottom = phone.do("mobile_ui_elements", contains="Tap me").data["elements"][0]["bounds"]
    tapped = phone.do("mobile_click", x=(left + right) / 4, y=(top + bottom) / 4, shot=half.data["shot"])
    assert tapped.data["title"] == "tapped"


def test_phone_is_rotated(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=PHONE)
    assert phone.do("mobile_rotate", orientation="landscape").text.startswith("The phone is held in landscape")
    try:
        assert phone.do("mobile_get_size").data == {"width": SIZE[1], "height": SIZE[0]}
        eventually(lambda: (on_screen(phone).width, on_screen(phone).height) == (SIZE[1], SIZE[0]))
        eventually(lambda: phone.do("mobile_ui_elements", contains="Phone").data["elements"][0]["bounds"][2] == SIZE[1])
    finally:
        phone.do("mobile_rotate", orientation="portrait")
    eventually(lambda: (on_screen(phone).width, on_screen(phone).height) == SIZE)


def test_apps_are_addresses_with_names(phone: BrowserSandbox) -> None:
    assert phone.do("mobile_start_app", app="Phone").data["title"] == "Phone"
    assert phone.do("mobile_start_app", app="forms").data["title"] == "Sign up"
    running = {one["name"]: one["running"] for one in phone.do("mobile_list_apps").data["apps"]}
    assert running["Phone"]
    again = phone.do("mobile_start_app", app="Phone")
    assert "is in front again" in again.text and again.data["title"] == "Phone"
    phone.do("mobile_stop_app", app="Phone")
    assert "is not running" in phone.fails("mobile_stop_app", app="Phone")
    assert "there is no app 'Calendar'" in phone.fails("mobile_start_app", app="Calendar")


def test_back_home_and_other_keys_are_pressed(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=f"{PAGES_URL}/tricks.html")
    assert phone.do("mobile_click", text="form").data["title"] == "Sign up"
    assert phone.do("mobile_send_key", key="back").data["title"] == "Tricks"
    assert phone.do("mobile_send_key", key="home").data["url"].endswith("start.html")
    assert "has no key power" in phone.fails("mobile_send_key", key="power")


def test_dialogs_are_answered_by_keys(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=f"{PAGES_URL}/tricks.html")
    result = phone.do("mobile_click", text="delete")
    assert 'confirm "Really delete?"' in result.text and "mobile_send_key enter accepts" in result.text
    assert phone.do("mobile_send_key", key="enter").data["title"] == "confirmed true"
    phone.do("mobile_click", text="name")
    phone.do("mobile_input_text", value="李")
    assert phone.do("mobile_send_key", key="enter").data["title"] == "named 李"
    phone.do("mobile_click", text="delete")
    dismissed = 'The dialog confirm "Really delete?" was dismissed because something else was done'
    seen = phone.do("mobile_screenshot")
    assert seen.images and dismissed in seen.text
    assert phone.do("mobile_click", x=1, y=1).data["title"] == "confirmed false"
    phone.do("mobile_click", text="delete")
    assert dismissed in phone.do("mobile_ui_elements").text
    assert dismissed not in phone.do("mobile_ui_elements").text, "once is enough"
    phone.do("mobile_click", text="delete")
    again = phone.do("mobile_click", text="delete")
    assert dismissed in again.text and again.data["dialog"], "the one before, and a new one"
    assert dismissed in phone.fails("mobile_click", text="nothing like it")


def test_errors_contain_advice(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=PHONE)
    assert "outside the screen, which is 412x915" in phone.fails("mobile_click", x=412, y=1)
    assert "outside the screen" in phone.fails("mobile_swipe", start_x=1, start_y=1, end_x=1, end_y=2000)
    assert "give x and y" in phone.fails("mobile_click", y=1)
    assert "no element on the screen has the text" in phone.fails("mobile_click", text="nothing like it")
    assert "tap one first" in phone.fails("mobile_input_text", value="x")
    assert "a swipe needs a direction" in phone.fails("mobile_swipe", start_x=1)
    assert "after 0.2 s" in phone.fails("mobile_wait_for", text="never", timeout=0.2)
    with pytest.raises(InvalidInput, match="'key' must be one of back"):
        phone.call("mobile_send_key", key="any")


def test_killed_chromium_restarts_as_a_phone(phone: BrowserSandbox) -> None:
    phone.do("mobile_start_app", app=PHONE)
    phone.sandbox.run("pkill -9 -o chromium")
    eventually(lambda: not phone.call("mobile_start_app", app=PHONE).failed, 40)
    assert phone.do("mobile_click", text="Tap me").data["title"] == "tapped"
    data = base64.b64decode(phone.do("mobile_screenshot", format="png").images[0]["data"])
    assert struct.unpack(">II", data[16:24]) == SIZE
