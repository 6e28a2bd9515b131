"""Browser tools on real chromium in a real sandbox, with benign and hostile pages."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.sandbox.daemon.client import DaemonClient
from tests.contract.backends.support import eventually
from tests.support.browser_sandboxes import PAGES_URL, BrowserSandbox, run_browser_sandbox

UNICODE = "Ærøskøbing 你好世界 😀👩‍👩‍👧 𝒳𐍈 عربي"
LIMIT = 20_000_000


@pytest.fixture(scope="module")
def browser_sandbox() -> Iterator[BrowserSandbox]:
    with run_browser_sandbox("browser", env={"PADDOCK_DOWNLOAD_LIMIT": str(LIMIT)}) as made:
        yield made


@pytest.fixture
def web(browser_sandbox: BrowserSandbox) -> Iterator[BrowserSandbox]:
    """The browser with one tab."""
    yield browser_sandbox
    for tab in browser_sandbox.do("browser_tabs").data["tabs"][1:]:
        browser_sandbox.call("browser_tabs", action="close", tab=tab["id"])


def jpeg_size(data: bytes) -> tuple[int, int]:
    """The width and height of a JPEG picture."""
    at = 2
    while not 0xC0 <= data[at + 1] <= 0xC2:
        at += 2 + int(struct.unpack(">H", data[at + 2 : at + 4])[0])
    height, width = struct.unpack(">HH", data[at + 5 : at + 9])
    return width, height


def refs(snapshot: str) -> dict[str, str]:
    """The refs of a snapshot by the names of their elements."""
    return dict(re.findall(r'"([^"\n]+)"[^\n]*?\[ref=(\w+)\]', snapshot))


def test_form_is_filled_submitted_and_its_result_read(web: BrowserSandbox) -> None:
    opened = web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    assert opened.data["title"] == "Sign up" and opened.data["changed"]["url"]
    known = refs(web.do("browser_snapshot").text)
    entered = web.do("browser_input", ref=known["Name"], value=UNICODE)
    assert 'The focus is now on input "Name"' in entered.text
    web.do("browser_select", ref=known["Country"], options=["China"])
    web.do("browser_click", text="Send me news")
    before = web.do("browser_screenshot", format="png").images[0]["data"]
    sent = web.do("browser_click", text="Send")
    assert sent.data["title"] == "Welcome" and sent.data["changed"]["title"]
    assert web.do("browser_get_text", selector="#result").text.strip() == f"Welcome, {UNICODE} of cn, with news"
    assert web.do("browser_screenshot", format="png").images[0]["data"] != before


def test_snapshot_of_a_part_of_the_page_has_refs(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    part = web.do("browser_snapshot", selector="label:has(#name)").text
    assert "Sign up" in part.splitlines()[0] and "Country" not in part
    web.do("browser_input", ref=refs(part)["Name"], value="part")
    assert web.do("browser_evaluate", script="document.querySelector('#name').value").text.startswith('"part"')


def test_text_is_typed_key_by_key_and_submitted_with_enter(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_input", selector="#name", value="a")
    web.do("browser_input", selector="#name", value="漢字😀 b", type=True, submit=True)
    assert "Welcome, a漢字😀 b of" in web.do("browser_get_text").text


def test_keys_go_to_the_focused_element(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_click", selector="#name")
    web.do("browser_input", value="somebody")
    web.do("browser_press_keys", keys="shift+Home")
    web.do("browser_press_keys", keys="Backspace")
    assert web.do("browser_evaluate", script="document.querySelector('#name').value").text.startswith('""')


def test_files_are_uploaded_into_a_field_and_a_chooser(web: BrowserSandbox) -> None:
    web.sandbox.write("/workspace/one.txt", b"1")
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_upload", selector="input[type=file]", paths=["one.txt"])
    web.do("browser_click", text="Send")
    assert "one.txt" in web.do("browser_get_text", selector="#result").text
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    assert web.do("browser_upload", text="choose file", paths=["/workspace/one.txt"]).data["title"] == "one.txt"
    assert "the file /workspace/none does not exist" in web.fails("browser_upload", paths=["none"])


def test_history_goes_back_and_forward_and_page_reloads(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    assert web.do("browser_back").data["title"] == "Sign up"
    assert web.do("browser_forward").data["title"] == "Tricks"
    assert web.do("browser_reload").data["title"] == "Tricks"
    assert "there is no next page" in web.fails("browser_forward")


def test_new_tab_is_reported_and_becomes_current(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    first = web.do("browser_tabs").data["tabs"][0]["id"]
    opened = web.do("browser_click", text="new tab")
    assert "A new tab" in opened.text and opened.data["title"] == "Sign up" and opened.data["changed"]["tab"]
    tabs = web.do("browser_tabs").data["tabs"]
    assert [tab["current"] for tab in tabs] == [False, True]
    assert web.do("browser_tabs", action="select", tab=first).data["title"] == "Tricks"
    closed = web.do("browser_tabs", action="close", tab=tabs[1]["id"])
    assert [tab["id"] for tab in closed.data["tabs"]] == [first]
    assert "unknown tab 't99'" in web.fails("browser_tabs", action="close", tab="t99")


def test_closing_the_last_tab_opens_another(web: BrowserSandbox) -> None:
    web.do("browser_tabs", action="close")
    assert len(web.do("browser_tabs").data["tabs"]) == 1
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"


def test_mouse_clicks_hovers_scrolls_and_drags(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_hover", selector="#hovered")
    assert "hovered" in web.do("browser_get_text", selector="#hovered").text
    assert web.do("browser_drag", from_selector="#source", to_selector="#target").data["title"] == "dragged"
    assert "500 to" in web.do("browser_scroll", direction="down", pixels=500).text
    assert "shows 0 to" in web.do("browser_scroll", direction="top").text
    assert web.do("browser_click", text="at the bottom").data["title"] == "bottom clicked"
    web.do("browser_click", text="in the frame")
    assert "framed click" in web.do("browser_snapshot").text


def test_screenshot_pixels_map_to_the_page(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    shot = web.do("browser_screenshot", full_page=True, scale=0.5)
    size = jpeg_size(base64.b64decode(shot.images[0]["data"]))
    assert size == (shot.data["width"], shot.data["height"]) and size[1] > 1500
    find = "(() => { const b = [...document.querySelectorAll('button')].pop().getBoundingClientRect();"
    x, y = json.loads(
        web.do(
            "browser_evaluate", script=f"{find} return [b.x + b.width / 2, b.y + b.height / 2] }})()"
        ).text.partition("\nAddress")[0]
    )
    clicked = web.do("browser_click", x=x / 2, y=y / 2, shot=shot.data["shot"])
    assert clicked.data["title"] == "bottom clicked"


def test_screenshots_of_elements_and_of_the_viewport(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    element = web.do("browser_screenshot", selector="#source")
    assert (element.data["width"], element.data["height"]) == (80, 80)
    visible = web.do("browser_screenshot", scale=0.25)
    inner = json.loads(web.do("browser_evaluate", script="[innerWidth, innerHeight]").text.partition("\nAddress")[0])
    assert abs(visible.data["width"] - inner[0] / 4) <= 1 and abs(visible.data["height"] - inner[1] / 4) <= 1


def test_dialog_waits_for_its_answer(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    result = web.do("browser_click", text="delete")
    assert 'confirm "Really delete?"' in result.text and result.data["dialog"] == 'confirm "Really delete?"'
    assert web.do("browser_dialog", accept=True).data["title"] == "confirmed true"
    web.do("browser_click", text="name")
    assert web.do("browser_dialog", text="李").data["title"] == "named 李"


def test_dialog_does_not_block_other_tools(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_click", text="delete")
    started = time.monotonic()
    read = web.do("browser_screenshot")
    assert time.monotonic() - started < 4
    assert "was dismissed because browser_screenshot was called" in read.text
    assert web.do("browser_evaluate", script="document.title").text.startswith('"confirmed false"')


def test_next_dialog_gets_the_planned_answer(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    assert "the next one will be accepted" in web.do("browser_dialog", text="Ole").text
    answered = web.do("browser_click", text="name")
    assert answered.data["title"] == "named Ole" and "dialog" not in answered.data


def test_page_with_endless_dialogs_can_be_left(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.call("browser_click", text="nag")
    started = time.monotonic()
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"
    assert time.monotonic() - started < 15


def test_unresponsive_server_times_out(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    started = time.monotonic()
    error = web.fails("browser_navigate", url=f"{PAGES_URL}/silent", timeout=1)
    assert time.monotonic() - started < 4
    assert "did not answer within 1 s" in error
    assert web.do("browser_get_text").text.startswith("Sign up")


def test_page_that_loads_forever_is_shown_partially(web: BrowserSandbox) -> None:
    started = time.monotonic()
    shown = web.do("browser_navigate", url=f"{PAGES_URL}/half", timeout=1)
    assert time.monotonic() - started < 5
    assert "had not finished loading" in shown.text and shown.data["title"] == "Half"
    assert "The first half" in web.do("browser_get_text").text


def test_busy_page_is_reported_and_can_be_left(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    button = "<button onclick='for (;;);'>caught</button>"
    web.do("browser_evaluate", script=f'document.body.insertAdjacentHTML("beforeend", "{button}")')
    started = time.monotonic()
    assert "this was probably done, but now the page is busy with a script" in web.fails("browser_click", text="caught")
    assert time.monotonic() - started < 7
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    started = time.monotonic()
    assert "Now the page is busy with a script" in web.call("browser_click", text="hang").text
    assert time.monotonic() - started < 7
    for tool in ("browser_get_text", "browser_snapshot"):
        started = time.monotonic()
        assert "busy with a script" in web.fails(tool)
        assert time.monotonic() - started < 6
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"


def test_endless_script_is_terminated(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    assert "was ended" in web.fails("browser_evaluate", script="while (true);", timeout=0.5)
    assert web.do("browser_get_text").text.startswith("Sign up")


def test_downloads_are_saved_in_the_workspace(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    clicked = web.do("browser_click", text="download")
    waited = web.do("browser_downloads", wait=True)
    (path,) = {*clicked.files, *waited.files}
    assert f"is complete: {path} (11 bytes)" in clicked.text + waited.text and path.startswith("/workspace/downloads/")
    assert web.sandbox.output(["cat", path]) == "downloaded\n"
    done = waited.data["downloads"][-1]
    assert (done["state"], done["path"], done["size"]) == ("done", path, 11)


@pytest.mark.parametrize("name", ["huge", "endless"])
def test_a_download_past_the_limit_is_cancelled(web: BrowserSandbox, name: str) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_click", text=name)
    done = web.do("browser_downloads", wait=True, timeout=20)
    assert done.data["downloads"][-1]["state"] == "cancelled"
    assert "it is larger than the limit of 20.0 MB" in done.text
    eventually(lambda: int(web.sandbox.output("du -sm /workspace/downloads | cut -f1")) < 2)


def test_expressions_functions_and_statements_are_evaluated(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")

    def value(script: str, **more: str) -> str:
        return web.do("browser_evaluate", script=script, **more).text.partition("\nAddress")[0]

    assert value("document.title") == '"Sign up"'
    assert json.loads(value("async () => { await null; return {a: [1, '你']} }")) == {"a": [1, "你"]}
    assert value("let once = 20; once + 1") == "21"
    assert value("let once = 30; await Promise.resolve(once)") == "30"
    assert value("undefined") == "undefined"
    assert value("element => element.id", selector="#name") == '"name"'
    assert "Error: wrong" in web.fails("browser_evaluate", script="throw new Error('wrong')")
    assert "SyntaxError" in web.fails("browser_evaluate", script="(((")


def test_text_of_pages_is_bounded(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_evaluate", script="document.title = 't'.repeat(1e6); document.body.textContent = 'x'.repeat(3e6)")
    text = web.do("browser_get_text", max_chars=1000).text
    assert len(text) < 1200 and "[… 2999000 characters left out …]" in text
    assert len(web.do("browser_get_html").text) < 31_000
    assert len(web.do("browser_snapshot").text) < 31_000
    assert len(web.do("browser_tabs").text) < 5_000
    long = web.do("browser_evaluate", script="'y'.repeat(1e7)").text
    assert 100_000 < len(long) < 110_000


def test_console_log_is_bounded(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_click", text="talk")
    found = eventually(lambda: web.do("browser_console", count=500, contains="line 1499").data["messages"], 20)
    assert len(found[-1]["text"]) < 2100
    assert len(web.do("browser_console", count=500).data["messages"]) == 500


def test_console_and_network_logs(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_console", clear=True)
    web.do("browser_evaluate", script="console.warn('careful'); setTimeout(() => { throw new Error('oops') })")
    web.do("browser_evaluate", script="fetch('missing').then(answer => answer.status)")
    console_text = eventually(
        lambda: web.do("browser_console").text if "oops" in web.do("browser_console").text else ""
    )
    assert "[warning] careful" in console_text and "[exception]" in console_text
    (request,) = web.do("browser_network", contains="/missing").data["requests"]
    assert (request["method"], request["status"]) == ("GET", 404)


def test_cookies_are_read_set_and_cleared(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.do("browser_cookies", action="set", cookies=[{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])
    assert web.do("browser_evaluate", script="document.cookie").text.startswith('"a=1; b=2"')
    assert [one["name"] for one in web.do("browser_cookies").data["cookies"]] == ["a", "b"]
    web.do("browser_cookies", action="clear")
    assert web.do("browser_cookies").data["cookies"] == []


def test_page_is_printed_as_pdf(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    printed = web.do("browser_pdf", path="out/form.pdf")
    assert printed.files == ["/workspace/out/form.pdf"]
    assert web.sandbox.output("head -c 5 /workspace/out/form.pdf") == "%PDF-"


def test_wait_ends_when_a_later_element_appears(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_click", text="later")
    web.do("browser_wait_for", text="Here at last")
    web.do("browser_wait_for", selector="#late")
    web.do("browser_wait_for", until="load")
    assert "has not appeared after 0.3 s" in web.fails("browser_wait_for", text="never", timeout=0.3)
    assert "is still visible after 0.3 s" in web.fails("browser_wait_for", selector="#late", gone=True, timeout=0.3)


def test_errors_contain_advice(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    size = web.do("browser_evaluate", script="innerWidth + 'x' + innerHeight").text.split('"')[1]
    assert f"which is {size}" in web.fails("browser_click", x=99999, y=1)
    assert "which is" in web.fails("browser_click", x=-1, y=1)
    assert "no element has the text" in web.fails("browser_click", text="not there", timeout=0.3)
    assert "no element matches the selector" in web.fails("browser_click", selector="#nope", timeout=0.3)
    assert "take a new browser_snapshot" in web.fails("browser_click", ref="e9999")
    assert "give one of ref, selector, text" in web.fails("browser_click")
    assert "not several" in web.fails("browser_click", ref="e1", text="x")
    assert "did you mean" in web.fails("browser_press_keys", keys="ctrl+entr")
    assert "is not an address" in web.fails("browser_navigate", url="two words")
    assert "use browser_evaluate" in web.fails("browser_navigate", url="javascript:alert(1)")
    assert "the connection was refused" in web.fails("browser_navigate", url="http://127.0.0.1:9999/")
    assert "HTTP 404" in web.do("browser_navigate", url=f"{PAGES_URL}/missing").text


def test_covering_element_is_reported(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.do("browser_click", text="cover")
    assert 'covered by <div id="cover">' in web.fails("browser_click", text="later", timeout=0.5)


def test_invalid_arguments_are_refused(web: BrowserSandbox) -> None:
    wrong: dict[str, tuple[str, dict[str, Any]]] = {
        "'url' is missing": ("browser_navigate", {}),
        "'url' must be text": ("browser_navigate", {"url": 7}),
        "'timeout' must be": ("browser_navigate", {"url": PAGES_URL, "timeout": 1e9}),
        "unknown argument": ("browser_click", {"txt": "x"}),
    }
    for message, (name, arguments) in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            web.call(name, **arguments)


def test_crashed_tab_is_replaced(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.sandbox.run("pkill -f -- '--type=renderer'")
    eventually(lambda: not web.call("browser_navigate", url=f"{PAGES_URL}/form.html", timeout=3).failed, 30)
    assert web.do("browser_get_text").text.startswith("Sign up")


def test_killed_chromium_is_reported_and_restarted(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    chromium = web.sandbox.output("pgrep -o chromium").strip()
    web.sandbox.start(f"sleep 0.2; kill -9 {chromium}")
    error = web.fails("browser_wait_for", text="never", timeout=10)
    assert "chromium has crashed or was killed" in error
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"


def test_chromium_killed_between_calls_is_reported_by_the_next_call(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    web.sandbox.run("kill -9 $(pgrep -o chromium)")
    lost = "Chromium had ended and was restarted; its tabs are lost."
    assert lost in web.do("browser_snapshot").text
    assert lost not in web.do("browser_snapshot").text


def test_stopped_desktop_is_reported_quickly(web: BrowserSandbox) -> None:
    web.do("browser_snapshot")

    async def services(start: bool) -> None:
        async with DaemonClient(web.sandbox.backend.daemon_address(web.sandbox.record)) as inside:
            await (inside.start_services() if start else inside.stop_services())

    asyncio.run(services(False))
    try:
        started = time.monotonic()
        assert "are not running; start it with POST /v1/sandboxes/{id}/desktop" in web.fails("browser_snapshot")
        assert time.monotonic() - started < 6
    finally:
        asyncio.run(services(True))
    assert "its tabs are lost" in web.do("browser_snapshot").text


def test_path_is_opened_as_a_file(web: BrowserSandbox) -> None:
    web.sandbox.write("/workspace/my shop.html", b"<title>Shop</title>")
    opened = web.do("browser_navigate", url="/workspace/my shop.html")
    assert opened.data["title"] == "Shop" and opened.data["url"] == "file:///workspace/my%20shop.html"


def test_killed_driver_is_restarted(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/form.html")
    assert web.sandbox.run("pkill -9 -f run-driver").exit_code == 0
    assert "its tabs are lost" not in web.call("browser_get_text").text
    assert web.do("browser_navigate", url=f"{PAGES_URL}/form.html").data["title"] == "Sign up"


def test_hung_page_does_not_block_a_new_connection(web: BrowserSandbox) -> None:
    web.do("browser_navigate", url=f"{PAGES_URL}/tricks.html")
    web.call("browser_click", text="hang")
    web.sandbox.run("pkill -9 -f run-driver")
    assert eventually(lambda: not web.call("browser_navigate", url=f"{PAGES_URL}/form.html").failed, 60)
    assert web.do("browser_get_text").text.startswith("Sign up")
