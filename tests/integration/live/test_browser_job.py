"""A browser sandbox does a real job, by tool calls only: a form is filled in and sent, and the answer read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.boxes import Box, box_of, data_of, read_png, screens_server
from tests.integration.live.sites import DONE, FORM, GREEN, serve_site
from tests.serving import Server, eventually, run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "browser") as running:
        yield running


@pytest.fixture(scope="module")
def box(client: httpx.Client) -> Iterator[Box]:
    with box_of(client, "browser") as made:
        yield made


@pytest.fixture(scope="module")
def site(box: Box) -> str:
    return serve_site(box, form=FORM, done=DONE)


def test_a_form_is_filled_in_and_the_answer_read(box: Box, site: str) -> None:
    assert "Order" in box.text("browser_navigate", url=f"{site}/form.html")
    assert "Amount" in box.text("browser_snapshot")
    box.call("browser_input", selector="[name=name]", value="李雷 🙂")
    box.call("browser_input", selector="[name=amount]", value="12")
    box.call("browser_select", selector="[name=colour]", options=["green"])
    box.call("browser_click", text="Send it")
    box.call("browser_wait_for", text="Thank you")
    assert "Thank you, 李雷 🙂: 12 in green" in box.text("browser_get_text")
    said = box.text("browser_evaluate", script="document.querySelector('#result').textContent")
    assert "12 in green" in said
    picture = read_png(data_of(box.call("browser_screenshot", format="png", scale=0.1)))
    assert picture.share(GREEN) > 0.8, "the page does not show it"
    eventually(lambda: box.screen(scale=0.1).share(GREEN) > 0.5)  # Chromium shows it a moment later.


def test_an_element_that_is_not_there_is_told(box: Box, site: str) -> None:
    box.call("browser_navigate", url=f"{site}/form.html")
    assert "#nowhere" in box.fails("browser_click", selector="#nowhere", timeout=0.5)


def test_a_page_that_never_answers_is_given_up(box: Box) -> None:
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 8099)); time.sleep(60)"
    run(box.client, box.id, f'nohup python3 -c "{listen}" >/dev/null 2>&1 </dev/null & sleep 0.3')
    answer = box.post("browser_navigate", {"url": "http://127.0.0.1:8099/", "timeout": 1})
    assert answer.status_code == 200, answer.text
    assert answer.elapsed.total_seconds() < 8
    assert "8099" in json.dumps(answer.json()["content"])


def test_chromium_that_was_killed_comes_back(box: Box, site: str) -> None:
    run(box.client, box.id, "pkill -9 -x chromium; true")

    def again() -> bool:
        answer = box.post("browser_navigate", {"url": f"{site}/form.html"})
        return answer.status_code == 200 and not answer.json()["isError"]

    eventually(again, 40)
    assert "Amount" in box.text("browser_get_text")
