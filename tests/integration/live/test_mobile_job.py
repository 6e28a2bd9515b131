"""A phone does a real job, by tool calls only: a page is opened, tapped, swiped until a field is there, typed in."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, read_png, sandbox_of, screens_server
from tests.integration.live.web_sites import PHONE, serve_site
from tests.support.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "mobile") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "mobile") as made:
        yield made


@pytest.fixture(scope="module")
def shop(sandbox: Sandbox) -> str:
    return serve_site(sandbox, shop=PHONE) + "/shop.html"


def on_screen(sandbox: Sandbox, text: str) -> bool:
    return text in sandbox.text("mobile_ui_elements", contains=text)


def test_page_is_opened_tapped_swiped_and_typed_in(sandbox: Sandbox, shop: str) -> None:
    sandbox.call("mobile_start_app", app=shop)
    sandbox.call("mobile_wait_for", text="Menu", timeout=30)
    sandbox.call("mobile_click", text="Menu")
    sandbox.call("mobile_wait_for", text="the menu is open", timeout=30)
    swipes = 0
    while not on_screen(sandbox, "Your note"):
        sandbox.call("mobile_swipe", direction="up")
        swipes += 1
        assert swipes < 30, "the field never came"
    assert swipes > 1, "it was there without swiping"
    for _ in range(3):
        # A page that still moves may take the tap for something else.
        sandbox.call("mobile_click", text="Your note")
        typed = sandbox.post("mobile_input_text", {"value": "牛奶 🥛"}).json()
        if not typed["isError"]:
            break
    sandbox.call("mobile_wait_for", text="noted: 牛奶 🥛", timeout=30)
    shown = read_png(data_of(sandbox.call("mobile_screenshot", format="png", scale=0.2)))
    assert shown.height > shown.width
    assert len({shown.at(x, y) for x in range(shown.width) for y in range(shown.height)}) > 5


def test_rotated_phone_is_wider_than_high(sandbox: Sandbox, shop: str) -> None:
    sandbox.call("mobile_start_app", app=shop)
    sandbox.call("mobile_rotate", orientation="landscape")
    try:
        shown = read_png(data_of(sandbox.call("mobile_screenshot", format="png", scale=0.2)))
        assert shown.width > shown.height
    finally:
        sandbox.call("mobile_rotate", orientation="portrait")


def test_tap_off_the_screen_is_reported(sandbox: Sandbox, shop: str) -> None:
    sandbox.call("mobile_start_app", app=shop)
    assert "5000" in sandbox.fails("mobile_click", x=5000, y=5000)
    assert "nowhere" in sandbox.fails("mobile_click", text="nowhere at all")
