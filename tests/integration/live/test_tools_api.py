"""Tools of a Linux desktop over HTTP: lists, calls, events, and waiting while a person has control."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, sandbox_of, screens_server, text_of
from tests.support.server import Server, eventually, run_in_sandbox

EVERYWHERE = {"read_file", "write_file", "list_directory", "create_directory", "move_file", "delete_file"}
LOOKS = 5
"""Pairs of screenshots, of which one pair must be unchanged."""
LINUX = EVERYWHERE | {"run_shell_command", "run_ipython_cell", "screenshot"}
ASK = (
    "import json, sys, urllib.request as r\n"
    "body = json.dumps({'jsonrpc': '2.0', 'id': 1, **json.loads(sys.argv[1])}).encode()\n"
    "asked = r.Request('http://127.0.0.1:8765/mcp', body, {'Content-Type': 'application/json'})\n"
    "print(r.build_opener(r.ProxyHandler({})).open(asked, timeout=20).read().decode())\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux", live={"input_wait": 20}) as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "linux") as made:
        yield made


def test_sandbox_lists_its_tools(sandbox: Sandbox) -> None:
    answer = sandbox.client.get(f"{sandbox.path}/tools")
    tools = {tool["name"]: tool for tool in answer.json()["items"]}
    assert tools.keys() >= LINUX
    assert tools["click_mouse"]["input"] and tools["click_mouse"]["changesScreen"]
    assert not tools["screenshot"]["input"] and tools["screenshot"]["readOnly"]
    assert tools["read_file"]["inputSchema"]["required"] == ["path"]


def test_written_file_is_read_by_the_next_call(sandbox: Sandbox) -> None:
    sandbox.call("write_file", path="/tmp/notes/a.txt", content="第一行\n🙂")
    assert "第一行\n🙂" in sandbox.text("read_file", path="/tmp/notes/a.txt")
    assert "a.txt" in sandbox.text("list_directory", path="/tmp/notes")


def test_tool_failure_is_a_result_with_the_reason(sandbox: Sandbox) -> None:
    assert "/no/such/file" in sandbox.fails("read_file", path="/no/such/file")


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("read_file", {}, "path"),
        ("read_file", {"path": 3}, "path"),
        ("read_file", {"path": "/tmp", "depth": 1}, "depth"),
        ("click_mouse", {"x": "left", "y": 1}, "x"),
        ("click_mouse", {"x": 1, "y": [2]}, "y"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(
    sandbox: Sandbox, tool: str, arguments: dict[str, Any], named: str
) -> None:
    answer = sandbox.post(tool, arguments)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "INVALID_INPUT"
    message = answer.json()["message"]
    assert f"'{named}'" in message and "\n" not in message


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b"{", b'{"path": NaN}'])
def test_arguments_must_be_an_object(sandbox: Sandbox, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = sandbox.client.post(f"{sandbox.path}/tools/read_file", content=body, headers=headers)
    assert answer.status_code == 400, answer.text


def test_unknown_tool_error_names_the_nearest_tool(sandbox: Sandbox) -> None:
    answer = sandbox.post("read_fil", {"path": "/tmp"})
    assert answer.status_code == 404
    assert "read_file" in answer.json()["message"]
    assert sandbox.post("x" * 200).status_code == 400
    assert sandbox.client.post(f"{sandbox.path}/tools/a%2Fb", json={}).status_code in (400, 404)


def test_coordinates_off_the_screen_are_reported(sandbox: Sandbox) -> None:
    assert "1280" in sandbox.fails("click_mouse", x=5000, y=10)


def test_other_tenants_and_readers_cannot_call_tools(server: Server, client: httpx.Client, sandbox: Sandbox) -> None:
    secret = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    with server.client(secret) as stranger:
        assert stranger.get(f"{sandbox.path}/tools").status_code == 404
        assert stranger.post(f"{sandbox.path}/tools/read_file", json={"path": "/etc"}).status_code == 404
        assert stranger.get(f"{sandbox.path}/screenshot").status_code == 404
        assert stranger.post(f"{sandbox.path}/mcp", json={}).status_code in (400, 404)
    body = {"name": "reader", "scopes": ["sandboxes:read", "tenant:all"]}
    with server.client(client.post("/v1/keys", json=body).json()["secret"]) as reader:
        assert reader.get(f"{sandbox.path}/tools").status_code == 200
        assert reader.get(f"{sandbox.path}/screenshot").status_code == 200
        assert reader.post(f"{sandbox.path}/tools/read_file", json={"path": "/etc"}).status_code == 403
        assert reader.post(f"{sandbox.path}/mcp", json={}).status_code == 403
        assert reader.delete(f"{sandbox.path}/desktop").status_code == 403


def test_a_sandbox_without_a_screen_has_no_screenshot(client: httpx.Client) -> None:
    with sandbox_of(client, "code", image={"uri": "host"}) as plain:
        answer = client.get(f"{plain.path}/screenshot")
        assert answer.status_code == 404, answer.text
        assert answer.json()["message"].startswith("this sandbox has no screen; create one of a kind with a screen")


# Screenshots


def test_a_screenshot_is_jpeg_or_png_at_a_scale(sandbox: Sandbox) -> None:
    answer = sandbox.client.get(f"{sandbox.path}/screenshot")
    assert answer.headers["Content-Type"] == "image/jpeg" and answer.content[:3] == b"\xff\xd8\xff"
    assert (answer.headers["X-Paddock-Width"], answer.headers["X-Paddock-Height"]) == ("1280", "800")
    assert answer.headers["Cache-Control"] == "no-cache"
    small = sandbox.screen(scale=0.1)
    assert (small.width, small.height) == (128, 80)
    part = sandbox.screen(region="0,0,40,30")
    assert (part.width, part.height) == (40, 30)
    assert len({small.at(x, y) for x in range(0, 128, 8) for y in range(0, 80, 8)}) > 3, "nothing is on it"


def test_unchanged_screen_is_304_without_body(sandbox: Sandbox) -> None:
    sandbox.call("wait_for_settled_screen")

    def look(tag: str = "") -> httpx.Response:
        headers = {"If-None-Match": tag} if tag else {}
        return sandbox.client.get(f"{sandbox.path}/screenshot", params={"scale": 0.5}, headers=headers)

    first = look()
    # The panel's clock may go on between two looks, or a window paint itself anew, but not between all of them.
    for _ in range(LOOKS):
        again = look(first.headers["ETag"])
        if again.status_code == 304:
            break
        assert again.headers["ETag"] != first.headers["ETag"], "the same screen was sent twice"
        sandbox.call("wait_for_settled_screen")
        first = look()
    assert again.status_code == 304 and again.content == b"" and again.headers["ETag"] == first.headers["ETag"]
    other = sandbox.client.get(
        f"{sandbox.path}/screenshot", params={"scale": 0.4}, headers={"If-None-Match": first.headers["ETag"]}
    )
    assert other.status_code == 200, "another view has another tag"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"format": "bmp"}, "format"),
        ({"scale": "0"}, "scale"),
        ({"scale": "big"}, "scale"),
        ({"quality": "200"}, "quality"),
        ({"region": "1,2,3"}, "region"),
        ({"region": "0,0,0,5"}, "region"),
        ({"region": "9000,9000,5,5"}, "region"),
    ],
)
def test_invalid_screenshot_options_are_refused(sandbox: Sandbox, query: dict[str, str], named: str) -> None:
    answer = sandbox.client.get(f"{sandbox.path}/screenshot", params=query)
    assert answer.status_code == 400, answer.text
    assert named in answer.json()["message"] and "\n" not in answer.json()["message"]


def test_screenshot_tool_returns_the_same_picture(sandbox: Sandbox) -> None:
    result = sandbox.call("screenshot", format="png", scale=0.1)
    assert data_of(result)[:4] == b"\x89PNG"


# Events


def test_call_events_have_no_arguments(sandbox: Sandbox) -> None:
    sandbox.call("write_file", path="/tmp/secret.txt", content="hunter2")
    called = eventually(lambda: [e for e in sandbox.events("tool.called") if e["data"]["name"] == "write_file"])
    assert called[-1]["data"].keys() == {"name", "seconds", "failed"}
    assert "hunter2" not in str(sandbox.events("tool.called"))
    wanted = {"tool": "write_file", "paths": ["/tmp/secret.txt"]}
    eventually(lambda: wanted in [event["data"] for event in sandbox.events("file.changed")])


def test_screen_update_events_have_a_bounded_rate(sandbox: Sandbox) -> None:
    before = len(sandbox.events("screenshot.update"))
    began = time.monotonic()
    for x in range(40):
        sandbox.call("move_mouse", x=100 + x, y=300)
    updates = eventually(lambda: sandbox.events("screenshot.update")[before:])
    assert updates[0]["data"]["cause"] in ("move_mouse", "timer")
    assert len(updates) <= 2 + (time.monotonic() - began)


def test_desktop_stop_and_start_are_published(sandbox: Sandbox) -> None:
    assert eventually(lambda: sandbox.events("desktop.started")), "it was up when the sandbox was made"
    stopped = sandbox.client.delete(f"{sandbox.path}/desktop")
    assert stopped.status_code == 200 and stopped.json()["up"] is False, stopped.text
    assert eventually(lambda: sandbox.events("desktop.stopped"))[-1]["data"]["reason"] == "stopped"
    assert sandbox.client.get(f"{sandbox.path}/screenshot").status_code in (409, 503)
    started = sandbox.client.post(f"{sandbox.path}/desktop")
    assert started.status_code == 200 and started.json()["up"] is True, started.text
    eventually(lambda: len(sandbox.events("desktop.started")) == 2)
    eventually(lambda: sandbox.client.get(f"{sandbox.path}/screenshot").status_code == 200)


def test_killed_display_restarts_and_is_published(sandbox: Sandbox) -> None:
    before = len(sandbox.events("desktop.stopped")), len(sandbox.events("desktop.started"))
    run_in_sandbox(sandbox.client, sandbox.id, "kill -9 $(pidof Xvnc)")
    eventually(lambda: len(sandbox.events("desktop.stopped")) > before[0])
    eventually(lambda: len(sandbox.events("desktop.started")) > before[1])
    eventually(lambda: sandbox.client.get(f"{sandbox.path}/screenshot").status_code == 200)
    sandbox.call("move_mouse", x=10, y=10)


# The holder of the input


def take_input(sandbox: Sandbox, name: str = "Ann") -> dict[str, Any]:
    answer = sandbox.client.post(f"{sandbox.path}/input", json={"viewer": "tab-1", "name": name})
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def release_input(sandbox: Sandbox) -> None:
    answer = sandbox.client.request("DELETE", f"{sandbox.path}/input", params={"viewer": "tab-1"})
    assert answer.status_code in (200, 204), answer.text


def test_blocked_input_call_names_the_holder(sandbox: Sandbox) -> None:
    sandbox.call("move_mouse", x=50, y=50)
    take_input(sandbox)
    try:
        began = time.monotonic()
        refused = sandbox.post("move_mouse", {"x": 700, "y": 50}, wait=0.1)
        assert time.monotonic() - began < 5
        assert refused.status_code == 409 and refused.json()["code"] == "INPUT_HELD"
        assert "Ann has control of this sandbox since" in refused.json()["message"]
        sandbox.call("screenshot", scale=0.1)
        assert "'x': 50" in str(sandbox.call("get_cursor_position").get("structuredContent"))
    finally:
        release_input(sandbox)


def assert_waits_for_release(sandbox: Sandbox, call: Callable[[], dict[str, Any]]) -> None:
    """Check that a call waits while a person has control, and that its result mentions the person."""

    def waited() -> bool:
        take_input(sandbox)
        results: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: results.append(call()))
        waiting.start()
        time.sleep(0.15)
        assert not results, "it did not wait"
        release_input(sandbox)
        waiting.join(20)
        assert results, "it did not go on"
        # On a busy machine it may start only after control was released.
        return "A person had control" in text_of(results[0])

    eventually(waited)


def test_waiting_call_continues_when_control_is_released(sandbox: Sandbox) -> None:
    assert_waits_for_release(sandbox, lambda: sandbox.call("move_mouse", x=333, y=222))
    assert "333" in str(sandbox.call("get_cursor_position").get("structuredContent"))


def test_disconnected_waiting_call_has_no_effect(sandbox: Sandbox) -> None:
    sandbox.call("move_mouse", x=60, y=60)
    take_input(sandbox)
    with pytest.raises(httpx.ReadTimeout):
        sandbox.client.post(f"{sandbox.path}/tools/move_mouse", json={"x": 900, "y": 700}, timeout=0.15)
    time.sleep(0.1)
    release_input(sandbox)
    assert "'x': 60" in str(sandbox.call("get_cursor_position").get("structuredContent"))


def test_calls_end_when_their_sandbox_is_deleted(client: httpx.Client) -> None:
    with sandbox_of(client, "linux") as short:
        take_input(short)
        answers: list[httpx.Response] = []
        calls = [("move_mouse", {"x": 1, "y": 1}), ("run_shell_command", {"command": "sleep 60"})]
        threads = [threading.Thread(target=lambda call=call: answers.append(short.post(*call))) for call in calls]
        for thread in threads:
            thread.start()
        eventually(lambda: "sleep 60" in run_in_sandbox(client, short.id, "ps ax")[0])
        began = time.monotonic()
        client.delete(short.path)
        for thread in threads:
            thread.join(15)
        assert time.monotonic() - began < 10
        assert {answer.status_code for answer in answers} <= {404, 409, 502} and len(answers) == 2


# Calls of programs in the sandbox


def ask_inside(sandbox: Sandbox, **message: Any) -> Any:
    command = f"python3 -c {shlex.quote(ASK)} {shlex.quote(json.dumps(message))}"
    output, code = run_in_sandbox(sandbox.client, sandbox.id, command)
    assert code == 0, output
    return json.loads(output)


def test_programs_in_the_sandbox_call_its_tools_without_a_key(sandbox: Sandbox) -> None:
    assert run_in_sandbox(sandbox.client, sandbox.id, "printenv PADDOCK_TOOLS_URL")[0] == "http://127.0.0.1:8765/mcp"
    listed = ask_inside(sandbox, method="tools/list")
    assert {tool["name"] for tool in listed["result"]["tools"]} >= LINUX
    called = ask_inside(sandbox, method="tools/call", params={"name": "screenshot", "arguments": {"scale": 0.1}})
    assert data_of(called["result"])


def test_calls_of_programs_in_the_sandbox_wait_for_a_person(sandbox: Sandbox) -> None:
    call = {"name": "move_mouse", "arguments": {"x": 444, "y": 111}}

    def ask() -> dict[str, Any]:
        answer: dict[str, Any] = ask_inside(sandbox, method="tools/call", params=call)["result"]
        return answer

    assert_waits_for_release(sandbox, ask)
