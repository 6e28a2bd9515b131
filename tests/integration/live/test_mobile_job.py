"""A phone does a real job, by tool calls only: a page is opened, tapped, swiped until a field is there, typed in."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.boxes import Box, box_of, data_of, read_png, screens_server
from tests.integration.live.sites import PHONE, serve_site
from tests.serving import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "mobile") as running:
        yield running


@pytest.fixture(scope="module")
def box(client: httpx.Client) -> Iterator[Box]:
    with box_of(client, "mobile") as made:
        yield made


@pytest.fixture(scope="module")
def shop(box: Box) -> str:
    return serve_site(box, shop=PHONE) + "/shop.html"


def on_screen(box: Box, text: str) -> bool:
    return text in box.text("mobile_ui_elements", contains=text)


def test_a_page_is_opened_tapped_swiped_and_typed_in(box: Box, shop: str) -> None:
    box.call("mobile_start_app", app=shop)
    box.call("mobile_wait_for", text="Menu", timeout=30)
    box.call("mobile_click", text="Menu")
    box.call("mobile_wait_for", text="the menu is open", timeout=30)
    swipes = 0
    while not on_screen(box, "Your note"):
        box.call("mobile_swipe", direction="up")
        swipes += 1
        assert swipes < 30, "the field never came"
    assert swipes > 1, "it was there without swiping"
    for _ in range(3):
        # A page that still moves may take the tap for something else.
        box.call("mobile_click", text="Your note")
        typed = box.post("mobile_input_text", {"value": "牛奶 🥛"}).json()
        if not typed["isError"]:
            break
    box.call("mobile_wait_for", text="noted: 牛奶 🥛", timeout=30)
    shown = read_png(data_of(box.call("mobile_screenshot", format="png", scale=0.2)))
    assert shown.height > shown.width
    assert len({shown.at(x, y) for x in range(shown.width) for y in range(shown.height)}) > 5


def test_a_phone_that_is_turned_is_wider_than_high(box: Box, shop: str) -> None:
    box.call("mobile_start_app", app=shop)
    box.call("mobile_rotate", orientation="landscape")
    try:
        shown = read_png(data_of(box.call("mobile_screenshot", format="png", scale=0.2)))
        assert shown.width > shown.height
    finally:
        box.call("mobile_rotate", orientation="portrait")


def test_a_tap_beside_the_screen_is_told(box: Box, shop: str) -> None:
    box.call("mobile_start_app", app=shop)
    assert "5000" in box.fails("mobile_click", x=5000, y=5000)
    assert "nowhere" in box.fails("mobile_click", text="nowhere at all")
