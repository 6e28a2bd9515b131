"""Sandboxes of several kinds do one job together: what one makes, another works on. Driven by tool calls only."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, sandbox_of, screens_server
from tests.integration.live.web_sites import DONE, FORM, GREEN, PHONE, serve_site
from tests.support.server import Server, eventually

C = "/home/agent/.wine/drive_c"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux", "browser", "windows", "mobile") as running:
        yield running


@pytest.fixture(scope="module")
def sandboxes(server: Server) -> Iterator[dict[str, Sandbox]]:
    """One sandbox of each kind."""
    with server.client() as client, ExitStack() as held:
        client.timeout = httpx.Timeout(120)
        yield {kind: held.enter_context(sandbox_of(client, kind)) for kind in ("linux", "windows", "browser", "mobile")}


def sha256(sandbox: Sandbox, path: str) -> str:
    """The digest of a file, as the sandbox itself sees it."""
    file_bytes = base64.b64decode(sandbox.text("read_file", path=path, encoding="base64").splitlines()[-1])
    return hashlib.sha256(file_bytes).hexdigest()


def analyse(sandbox: Sandbox, path: str) -> tuple[int, int, tuple[int, int, int]]:
    """Size of a picture and its commonest colour, found out by a program in the sandbox."""
    code = (
        "from PIL import Image\n"
        f"picture = Image.open({path!r}).convert('RGB')\n"
        "small = picture.resize((64, 64))\n"
        "common = max(small.getcolors(4096))[1]\n"
        "print('found', *picture.size, *common)"
    )
    line = next(line for line in sandbox.text("run_ipython_cell", code=code).splitlines() if line.startswith("found"))
    width, height, *colour = map(int, line.split()[1:])
    return width, height, (colour[0], colour[1], colour[2])


def near(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 16 for a, b in zip(one, other, strict=True))


def test_file_is_moved_from_linux_to_windows(sandboxes: dict[str, Sandbox]) -> None:
    linux, windows = sandboxes["linux"], sandboxes["windows"]
    linux.call("run_shell_command", command="printf '姓名,数量\\r\\n李雷,12\\r\\n' > /tmp/table.csv")
    moved = linux.move("/tmp/table.csv", windows, f"{C}/table.csv")
    assert moved["sha256"] == sha256(linux, "/tmp/table.csv")
    assert "李雷,12" in windows.text("read_file", path=f"{C}/table.csv")
    assert "table.csv" in windows.text("run_shell_command", command="dir C:\\")
    move_events = eventually(lambda: windows.events("file.moved") or linux.events("file.moved"))
    assert move_events[-1]["data"]["sha256"] == moved["sha256"]


def test_picture_of_a_web_page_is_stored_on_windows(sandboxes: dict[str, Sandbox]) -> None:
    browser, windows = sandboxes["browser"], sandboxes["windows"]
    site = serve_site(browser, form=FORM, done=DONE)
    browser.call("browser_navigate", url=f"{site}/done.html?name=Ann&amount=3&colour=red")
    picture = data_of(browser.call("browser_screenshot", format="png"))
    content = base64.b64encode(picture).decode()
    windows.call("write_file", path=f"{C}/page.png", content=content, encoding="base64")
    assert sha256(windows, f"{C}/page.png") == hashlib.sha256(picture).hexdigest()
    moved = browser.move({"screenshot": True}, windows, f"{C}/screen.png")
    assert moved["type"] == "screenshot" and moved["size"] > 1000
    listed = windows.text("run_shell_command", command="dir C:\\")
    assert "page.png" in listed and "screen.png" in listed


def test_picture_of_a_phone_is_analysed_on_linux(sandboxes: dict[str, Sandbox]) -> None:
    mobile, linux = sandboxes["mobile"], sandboxes["linux"]
    site = serve_site(mobile, done=DONE, shop=PHONE)
    mobile.call("mobile_start_app", app=f"{site}/done.html?name=Bo&amount=1&colour=green")
    moved = mobile.move({"screenshot": True}, linux, "/tmp/phone.png")
    assert moved["type"] == "screenshot"
    width, height, colour = analyse(linux, "/tmp/phone.png")
    assert height > width, "a phone is higher than it is wide"
    assert near(colour, GREEN)
    picture = data_of(mobile.call("mobile_screenshot"))
    linux.call("write_file", path="/tmp/tool.jpg", content=base64.b64encode(picture).decode(), encoding="base64")
    assert near(analyse(linux, "/tmp/tool.jpg")[2], GREEN)


def test_browser_data_become_a_report_on_a_phone(sandboxes: dict[str, Sandbox]) -> None:
    browser, linux, windows, mobile = (sandboxes[kind] for kind in ("browser", "linux", "windows", "mobile"))
    site = serve_site(browser, form=FORM, done=DONE)
    browser.call("browser_navigate", url=f"{site}/done.html?name=Ann&amount=41&colour=green")
    found = browser.text("browser_evaluate", script="document.querySelector('#result').textContent")
    browser.call("write_file", path="/tmp/found.txt", content=found)
    browser.move("/tmp/found.txt", linux, "/tmp/found.txt")
    code = (
        "import re\n"
        "amount = int(re.search(r': (\\d+) in', open('/tmp/found.txt').read())[1])\n"
        "open('/tmp/report.txt', 'w').write(f'The amount is {amount + 1}.\\r\\n')"
    )
    linux.call("run_ipython_cell", code=code)
    linux.move("/tmp/report.txt", windows, f"{C}/report.txt")
    windows.call("run_shell_command", command="echo Checked on Windows.>> C:\\report.txt")
    windows.move(f"{C}/report.txt", linux, "/tmp/checked.txt")
    page = (
        "lines = open('/tmp/checked.txt').read().split('\\n')\n"
        "body = ''.join(f'<p>{line.strip()}</p>' for line in lines)\n"
        "style = 'background:rgb(0,160,80);font-size:24px'\n"
        "head = '<!doctype html><meta charset=utf-8><meta name=viewport content=\"width=device-width\">'\n"
        "open('/tmp/report.html', 'w').write(f'{head}<body style=\"{style}\">{body}')"
    )
    linux.call("run_ipython_cell", code=page)
    at = serve_site(mobile, done=DONE)
    linux.move("/tmp/report.html", mobile, "/tmp/site/report.html")
    mobile.call("mobile_start_app", app=f"{at}/report.html")
    shown = mobile.text("mobile_ui_elements")
    assert "The amount is 42." in shown and "Checked on Windows." in shown
    eventually(lambda: mobile.screen(scale=0.1).share(GREEN) > 0.5)


def test_ending_one_sandbox_leaves_the_others_running(server: Server, sandboxes: dict[str, Sandbox]) -> None:
    with server.client() as client, sandbox_of(client, "linux") as short:
        short.call("run_shell_command", command="true")
    for kind, sandbox in sandboxes.items():
        assert "here" in sandbox.text("run_shell_command", command="echo here"), kind
