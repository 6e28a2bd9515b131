"""Jobs across sandboxes of several kinds, with every engine that uses Paddock's tools.

The model follows a script; the sandboxes, the tools, the server and the engines are the real ones.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.agents.chat_client import SERVER_SIDE, Chat, call, check_order, scripted, text_of
from tests.integration.live.screen_sandboxes import Sandbox, screens_server
from tests.integration.live.web_sites import DONE, PORT
from tests.support.server import Server

C = "/home/agent/.wine/drive_c"
KINDS = ("linux", "browser", "windows", "mobile")
SITE = f"http://127.0.0.1:{PORT}"
SERVE = (
    f"cd /tmp/site && (nohup python3 -m http.server {PORT} --bind 127.0.0.1 >/dev/null 2>&1 </dev/null &) && "
    f"for i in $(seq 100); do python3 -c \"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)\" "
    "2>/dev/null && echo up && exit 0; sleep 0.1; done; exit 1"
)
ANALYSE = (
    "from PIL import Image\n"
    "picture = Image.open('/tmp/phone.png').convert('RGB')\n"
    "common = max(picture.resize((64, 64)).getcolors(4096))[1]\n"
    "print('found', *picture.size, *common)"
)
COUNT = (
    "import re\n"
    "amount = int(re.search(r': (\\d+) in', open('/tmp/found.txt').read())[1])\n"
    "open('/tmp/report.txt', 'w').write(f'The amount is {amount + 1}.\\r\\n')"
)
PAGE = (
    "lines = open('/tmp/checked.txt').read().split('\\n')\n"
    "body = ''.join(f'<p>{line.strip()}</p>' for line in lines)\n"
    "head = '<!doctype html><meta charset=utf-8><meta name=viewport content=\"width=device-width\">'\n"
    "open('/tmp/report.html', 'w').write(f'{head}<body>{body}')"
)


def move_call(from_kind: str, path: str, to_kind: str, target: str) -> dict[str, Any]:
    return call("move_between_sandboxes", from_kind=from_kind, from_path=path, to_kind=to_kind, to_path=target)


def serve_page_steps(kind: str) -> list[dict[str, Any]]:
    """Return steps that make a sandbox serve a page to itself."""
    return [
        call(f"{kind}_write_file", path="/tmp/site/done.html", content=DONE),
        call(f"{kind}_run_shell_command", command=SERVE),
    ]


FILE = [
    call("linux_run_shell_command", command="printf '姓名,数量\\r\\n李雷,12\\r\\n' > /tmp/table.csv"),
    move_call("linux", "/tmp/table.csv", "windows", f"{C}/table.csv"),
    call("windows_read_file", path=f"{C}/table.csv"),
    {"say": "On Windows it says: {{ tool.output }}"},
]
PICTURE = [
    *serve_page_steps("browser"),
    call("browser_navigate", url=f"{SITE}/done.html?name=Ann&amount=3&colour=red"),
    call("screenshot_to_sandbox", from_kind="browser", to_kind="windows", to_path=f"{C}/page.png"),
    call("windows_run_shell_command", command="dir C:\\"),
    {"say": "There it is: {{ tool.output }}"},
]
PHONE = [
    *serve_page_steps("mobile"),
    call("mobile_start_app", app=f"{SITE}/done.html?name=Bo&amount=1&colour=green"),
    call("mobile_screenshot"),
    call("screenshot_to_sandbox", from_kind="mobile", to_kind="linux", to_path="/tmp/phone.png"),
    call("linux_run_ipython_cell", code=ANALYSE),
    {"say": "The picture: {{ tool.output }}"},
]
REPORT = [
    call(
        "update_plan",
        steps=[{"title": "Look it up", "state": "running"}, {"title": "Report it", "state": "pending"}],
    ),
    *serve_page_steps("browser"),
    call("browser_navigate", url=f"{SITE}/done.html?name=Ann&amount=41&colour=green"),
    call("browser_evaluate", script="document.querySelector('#result').textContent"),
    call("browser_write_file", path="/tmp/found.txt", content="{{ tool.output }}"),
    move_call("browser", "/tmp/found.txt", "linux", "/tmp/found.txt"),
    call("linux_run_ipython_cell", code=COUNT),
    move_call("linux", "/tmp/report.txt", "windows", f"{C}/report.txt"),
    call("windows_run_shell_command", command="echo Checked on Windows.>> C:\\report.txt"),
    move_call("windows", f"{C}/report.txt", "linux", "/tmp/checked.txt"),
    call("linux_run_ipython_cell", code=PAGE),
    *serve_page_steps("mobile"),
    move_call("linux", "/tmp/report.html", "mobile", "/tmp/site/report.html"),
    call("mobile_start_app", app=f"{SITE}/report.html"),
    call("mobile_ui_elements"),
    {"say": "The phone shows: {{ tool.output }}"},
]


@pytest.fixture(scope="module", params=SERVER_SIDE)
def server_and_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """A server for one engine, with a model for each scenario."""
    directory = tmp_path_factory.mktemp(request.param)
    scripts = {"file": FILE, "picture": PICTURE, "phone": PHONE, "report": REPORT}
    llm = scripted(directory, **{name: {"turns": turns} for name, turns in scripts.items()})
    with screens_server(directory, *KINDS, llm=llm) as server:
        yield server, request.param


def run_scenario(
    server_and_engine: tuple[Server, str], client: httpx.Client, scenario: str, kinds: tuple[str, ...]
) -> Chat:
    """Run a scenario without approvals; no call may fail."""
    chat = Chat.create(client, agent=server_and_engine[1], model=scenario, kinds=kinds, policy={"allow_all": ["*"]})
    chat.send_message(f"Do the {scenario}.")
    assert chat.wait_for_turn_end() == "done"
    check_order(chat.seen_events)
    failed = {name: text_of(result) for name, result in chat.results_by_tool().items() if result.get("failed")}
    assert not failed
    return chat


def sandbox(chat: Chat, kind: str) -> Sandbox:
    return Sandbox(chat.client, chat.load_session()["sandboxes"][kind])


def test_file_is_copied_from_linux_to_windows(server_and_engine: tuple[Server, str]) -> None:
    """Approve every command, as the default policy demands."""
    server, engine = server_and_engine
    with server.client() as client:
        chat = Chat.create(client, agent=engine, model="file", kinds=["linux", "windows"])
        chat.send_message("Do the file.")
        assert chat.wait_for_turn_end(lambda approval: {"action": "approve"}) == "done"
        check_order(chat.seen_events)
        assert "李雷,12" in chat.reply_texts()[-1]
        assert (
            next(data["approval"]["name"] for data in chat.events_of("approval.required")) == "linux_run_shell_command"
        )
        assert "李雷,12" in sandbox(chat, "windows").text("read_file", path=f"{C}/table.csv")
        assert {data["kind"] for data in chat.events_of("session.sandbox") if data["state"] == "ready"} == {
            "linux",
            "windows",
        }
        assert client.delete(chat.path).status_code == 204


def test_web_page_screenshot_is_saved_on_windows(server_and_engine: tuple[Server, str]) -> None:
    with server_and_engine[0].client() as client:
        chat = run_scenario(server_and_engine, client, "picture", ("browser", "windows"))
        assert "page.png" in chat.reply_texts()[-1]
        read = sandbox(chat, "windows").text("read_file", path=f"{C}/page.png", encoding="base64")
        assert base64.b64decode(read.splitlines()[-1]).startswith(b"\x89PNG")
        assert client.delete(chat.path).status_code == 204


def test_phone_screenshot_is_analysed_on_linux(server_and_engine: tuple[Server, str]) -> None:
    with server_and_engine[0].client() as client:
        chat = run_scenario(server_and_engine, client, "phone", ("mobile", "linux"))
        line = next(line for line in chat.reply_texts()[-1].splitlines() if "found" in line)
        width, height, *colour = map(int, line.split("found")[1].split()[:5])
        assert height > width, "a phone is higher than it is wide"
        assert all(abs(a - b) <= 16 for a, b in zip(colour, (0, 160, 80), strict=True))
        shown = [part for part in chat.results_by_tool()["mobile_screenshot"]["content"] if part["type"] == "image"]
        picture = client.get(f"{chat.path}/files/{shown[0]['file']}")
        assert hashlib.sha256(picture.content).hexdigest() == shown[0]["file"]
        assert client.delete(chat.path).status_code == 204


def test_browser_result_becomes_report_on_phone(server_and_engine: tuple[Server, str]) -> None:
    with server_and_engine[0].client() as client:
        chat = run_scenario(server_and_engine, client, "report", KINDS)
        assert "The amount is 42." in chat.reply_texts()[-1] and "Checked on Windows." in chat.reply_texts()[-1]
        assert [step["title"] for step in chat.events_of("plan.changed")[-1]["steps"]] == ["Look it up", "Report it"]
        assert set(chat.load_session()["sandboxes"]) == set(KINDS)
        assert client.delete(chat.path).status_code == 204
        assert not [each for each in client.get("/v1/sandboxes").json()["items"] if each["id"]], "sandboxes go with it"
