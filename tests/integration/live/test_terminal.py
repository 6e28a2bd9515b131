"""Shared terminals of sandboxes, with a real server and real sandboxes."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.integration.live.websocket_clients import TIMEOUT_SECONDS, TerminalClient
from tests.support.server import Server, eventually, run_server

PROMPT = r"\$ "


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("paddock"), {"sandboxes": {"min_free_disk": 0}}) as running:
        yield running


@pytest.fixture
def sandbox(client: httpx.Client) -> Iterator[str]:
    made = str(client.post("/v1/sandboxes", json={}).json()["id"])
    yield made
    client.delete(f"/v1/sandboxes/{made}")


def events(client: httpx.Client, sandbox: str, kind: str) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/sandboxes/{sandbox}/events", headers={"Accept": "application/json"})
    return [event["data"] for event in answer.json()["items"] if event["type"] == kind]


def refused(server: Server, sandbox: str, **query: object) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as caught:
        TerminalClient(server, sandbox, **query)  # type: ignore[arg-type]
    return caught.value.response.status_code, json.loads(caught.value.response.body or b"{}")


def test_shell_has_size_exit_code_and_events(server: Server, client: httpx.Client, sandbox: str) -> None:
    with TerminalClient(server, sandbox, cols=100, rows=30) as viewer:
        viewer.expect(PROMPT)
        assert viewer.wait_for_message("connected")["name"] == "main"
        viewer.run("stty size; echo 'grün 日本 🦆' | tr a-z A-Z", r"\r30 100\r\n")
        viewer.expect("GRüN 日本 🦆")
        viewer.send_json(type="resize", cols=120, rows=40)
        viewer.run("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.02; done; echo re''sized", "resized")
        viewer.send_json(type="ping")
        viewer.wait_for_message("pong")
        viewer.run("exit 7", "exit")
        assert viewer.wait_for_message("exit")["exit_code"] == 7
        assert viewer.read_until_closed() == 1000
    assert events(client, sandbox, "terminal.ready") == [{"name": "main"}]
    assert events(client, sandbox, "terminal.closed") == [{"name": "main", "exit_code": 7, "reason": "exited"}]


def test_ended_terminal_restarts_for_a_new_viewer(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        viewer.run("before=1; echo a-lo''t; exit 3", "a-lot")
        viewer.wait_for_message("exit")
    with TerminalClient(server, sandbox, since=viewer.position) as back:
        assert back.wait_for_message("exit")["exit_code"] == 3
    with TerminalClient(server, sandbox) as reconnected:
        reconnected.expect(PROMPT)
        reconnected.run("echo before=$before.", r"before=\.")


def test_viewers_share_output_and_may_all_type(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as one:
        one.expect(PROMPT)
        one.run("answer=42; echo on''e", "one")
        with TerminalClient(server, sandbox) as two:
            two.expect("one")
            two.run("echo the-answer=$answer", "the-answer=42")
            one.expect("the-answer=42")
            assert one.position == two.position


def test_each_name_is_a_separate_terminal(server: Server, client: httpx.Client, sandbox: str) -> None:
    with TerminalClient(server, sandbox, name="one") as one, TerminalClient(server, sandbox, name="two") as two:
        one.expect(PROMPT)
        two.expect(PROMPT)
        one.run("me=first; echo go''od", "good")
        two.run("echo me=$me.", r"me=\.")
        listed = client.get(f"/v1/sandboxes/{sandbox}/terminals").json()["items"]
        assert sorted(listed, key=lambda each: str(each["name"])) == [
            {"name": "one", "running": True, "viewers": 1},
            {"name": "two", "running": True, "viewers": 1},
        ]
        assert client.delete(f"/v1/sandboxes/{sandbox}/terminals/one").status_code == 204
        assert one.wait_for_message("exit")["reason"] == "deleted"
    assert client.delete(f"/v1/sandboxes/{sandbox}/terminals/one").status_code == 404
    closed = events(client, sandbox, "terminal.closed")
    assert [(each["name"], each["reason"]) for each in closed] == [("one", "deleted")]


def test_reconnecting_viewer_gets_missed_output_once(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        viewer.run("echo fi''rst; (sleep 0.2; echo sec''ond) & wait", "first")
        offset = viewer.position
    with TerminalClient(server, sandbox, since=offset) as back:
        back.expect("second")
        assert b"first" not in b"".join(data for _, data in back.replays)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_terminal_survives_a_server_restart(tmp_path_factory: pytest.TempPathFactory, number: signal.Signals) -> None:
    with run_server(tmp_path_factory.mktemp("restart"), {"sandboxes": {"min_free_disk": 0}}) as server:
        with server.client() as client:
            sandbox = str(client.post("/v1/sandboxes", json={}).json()["id"])
        with TerminalClient(server, sandbox) as viewer:
            viewer.expect(PROMPT)
            viewer.run("answer=42; echo re''ady", "ready")
            viewer.expect(PROMPT)
            viewer.type("sleep 0.1; echo mean''while\r")
            viewer.expect("sleep")
            server.stop(number)
            viewer.read_until_closed()
        server.start(int(server.url.rpartition(":")[2]))
        with TerminalClient(server, sandbox, since=viewer.position) as back:
            if b"meanwhile" not in viewer.received_output:
                back.expect("meanwhile")
            back.run("echo the-answer=$answer", "the-answer=42")
            assert b"ready" not in b"".join(data for _, data in back.replays)


def test_only_the_input_holder_may_type(server: Server, client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/input"
    with TerminalClient(server, sandbox, viewer="ada") as ada, TerminalClient(server, sandbox, viewer="bob") as bob:
        ada.expect(PROMPT)
        bob.expect(PROMPT)
        assert client.post(path, json={"viewer": "ada", "name": "Ada"}).status_code == 200
        bob.type("echo bob-was-he''re\r")
        bob.send_json(type="signal", signal="SIGINT")
        assert bob.wait_for_message("held") == {"type": "held", "by": "Ada", "viewer": "ada"}
        bob.send_json(type="resize", cols=50, rows=10)
        ada.run("stty size; echo ada-was-he''re", "ada-was-here")
        with TerminalClient(server, sandbox, viewer="eve") as eve:
            assert eve.wait_for_message("connected")["held"] == {"by": "Ada", "viewer": "ada"}
        assert client.delete(path, params={"viewer": "ada"}).status_code == 204
        bob.run("echo now-it-is-b''ob", "now-it-is-bob")
        ada.expect("now-it-is-bob")
        replays = b"".join(data for _, data in ada.replays)
        assert b"bob-was-here" not in replays + ada.received_output + bob.received_output


def test_terminal_has_the_window_size_of_the_typing_viewer(server: Server, sandbox: str) -> None:
    with (
        TerminalClient(server, sandbox, cols=100, rows=30) as one,
        TerminalClient(server, sandbox, cols=60, rows=20) as two,
    ):
        two.expect(PROMPT)
        two.send_json(type="resize", cols=61, rows=21)
        one.run("stty size", r"\r30 100\r\n")
        two.run("stty size", r"\r21 61\r\n")
        assert one.wait_for_message("size", cols=61)["rows"] == 21


def test_stalled_viewer_does_not_slow_the_others(server: Server, sandbox: str) -> None:
    """A viewer that misses twenty megabytes gets the end of them, in whole characters."""
    lines = "yes 日本語🦆 | head -c 20000000; echo; echo fin''ished"
    with TerminalClient(server, sandbox) as awake, TerminalClient(server, sandbox) as sleeper:
        awake.expect(PROMPT)
        sleeper.expect(PROMPT)
        paused = threading.Event()
        _stop_reading(sleeper, paused)
        began = time.monotonic()
        awake.type(f"{lines}\r")
        awake.expect("finished\r\n")
        assert time.monotonic() - began < 40
        assert not awake.replays or awake.replays[0][0] == 0
        paused.set()
        sleeper.expect("finished\r\n")
        assert sleeper.position <= awake.position
        skipped = [data for first, data in sleeper.replays if first > 0]
        assert skipped
        for data in skipped:
            assert data.decode().startswith("日本語🦆\r\n")


def _stop_reading(viewer: TerminalClient, until: threading.Event) -> None:
    """Block the thread of the client that reads ahead."""
    receive = viewer.socket.protocol.receive_data

    def wait(data: bytes | bytearray) -> None:
        until.wait(TIMEOUT_SECONDS)
        receive(data)

    viewer.socket.protocol.receive_data = wait  # type: ignore[method-assign]


def test_program_waits_for_a_slow_viewer_but_not_for_a_stalled_one(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        paused = threading.Event()
        _stop_reading(viewer, paused)
        viewer.type("head -c 50000000 /dev/zero | tr '\\0' x; touch /tmp/through\r")
        with server.client() as client:
            through = {"path": "/tmp/through"}
            there = f"/v1/sandboxes/{sandbox}/proxy/44772/files/info"
            time.sleep(0.2)
            assert client.get(there, params=through).status_code == 404
            eventually(lambda: client.get(there, params=through).status_code == 200)
        paused.set()
        viewer.expect(PROMPT)


def test_invalid_frames_get_an_error(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        for nonsense in ("{", "[]", "7", '{"type": "dance"}', '{"type": "stdin"}', '{"type": {"a": 1}}', "[" * 100_000):
            viewer.socket.send(nonsense)
            assert viewer.wait_for_message("error")["code"] == "INVALID_FRAME"
        for size in ({"cols": 0, "rows": 1}, {"cols": 10**9, "rows": 1}, {"cols": "80", "rows": 24}, {"cols": 80}):
            viewer.send_json(type="resize", **size)
            assert viewer.wait_for_message("error")["code"] == "INVALID_FRAME"
        viewer.send_json(type="signal", signal="SIGNONSENSE")
        viewer.wait_for_message("error")
        viewer.socket.send(b"\x07what is this")
        viewer.socket.send(b"")
        viewer.run("echo al''ive", "alive")


def test_invalid_requests_are_rejected_before_the_terminal_opens(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    assert refused(server, sandbox, name="No/Way")[0] == 400
    assert refused(server, sandbox, since="-1")[0] == 400
    assert refused(server, sandbox, cols=0, rows=5)[0] == 400
    assert refused(server, sandbox, viewer="a%20b")[0] == 400
    assert refused(server, sandbox, name="0" * 32)[0] == 404
    assert refused(server, "sb-0123456789abcdef")[1]["code"] == "SANDBOX_NOT_FOUND"
    stranger = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    assert refused(server, sandbox, key=stranger)[1]["code"] == "SANDBOX_NOT_FOUND"
    assert refused(server, sandbox, key="")[0] == 401


def test_read_only_viewer_cannot_type(server: Server, client: httpx.Client, sandbox: str) -> None:
    body = {"name": "watcher", "scopes": ["sandboxes:read", "tenant:all"]}
    key = client.post("/v1/keys", json=body).json()["secret"]
    assert refused(server, sandbox, key=key)[0] == 403
    with TerminalClient(server, sandbox) as owner:
        owner.expect(PROMPT)
        with TerminalClient(server, sandbox, key=key) as watcher:
            watcher.expect(PROMPT)
            watcher.type("echo no''pe\r")
            assert watcher.wait_for_message("error")["code"] == "FORBIDDEN"
            owner.run("echo do''ne", "done")
            watcher.expect("done")
            assert b"nope" not in owner.received_output
            # Without another viewer the terminal would follow this window, if the key could change anything.
            owner.socket.close()
            terminals = f"/v1/sandboxes/{sandbox}/terminals"
            eventually(lambda: [each["viewers"] for each in client.get(terminals).json()["items"]] == [1])
            watcher.send_json(type="resize", cols=33, rows=7)
            watcher.send_json(type="ping")
            watcher.wait_for_message("pong")
            with TerminalClient(server, sandbox) as again:
                again.run("[ \"$(stty size)\" = '7 33' ] && echo chan''ged || echo ke''pt", "kept")


def test_deleting_a_sandbox_disconnects_terminal_viewers(server: Server, client: httpx.Client, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        assert client.delete(f"/v1/sandboxes/{sandbox}").status_code == 204
        assert viewer.read_until_closed() in (1000, 1001)
    assert refused(server, sandbox)[0] == 404


def test_paste_of_a_megabyte_arrives_completely(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        viewer.run("stty -echo raw; echo re''ady; head -c 1000000 | sha256sum; stty echo cooked", "ready")
        paste = b"0123456789" * 100_000
        viewer.socket.send(b"\0" + paste)
        viewer.expect(hashlib.sha256(paste).hexdigest())


def test_flood_of_single_keys_arrives_in_order(server: Server, sandbox: str) -> None:
    with TerminalClient(server, sandbox) as viewer:
        viewer.expect(PROMPT)
        viewer.run("stty -echo raw; echo re''ady; head -c 5000 | sha256sum; stty echo cooked", "ready")
        keys = [f"{number % 10}" for number in range(5000)]
        for key in keys:
            viewer.type(key)
        viewer.expect(hashlib.sha256("".join(keys).encode()).hexdigest())
