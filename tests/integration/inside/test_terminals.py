"""Terminals over WebSocket."""

from __future__ import annotations

import struct

import pytest

from .daemon import TOKEN, Daemon, alive, eventually
from .websocket import BINARY, CLOSE, PING, PONG, TEXT, WebSocketClient


def create(daemon: Daemon, **options: str) -> str:
    identifier: str = daemon.call("POST", "/pty", options).json()["session_id"]
    return identifier


def attach(daemon: Daemon, identifier: str, query: str = "", **headers: str) -> WebSocketClient:
    return WebSocketClient(daemon.dial(), f"/pty/{identifier}/ws{query}", **headers)


def handshake(daemon: Daemon, identifier: str, query: str = "", **headers: str) -> int:
    with attach(daemon, identifier, query, **headers) as client:
        return client.status


def test_a_shell_on_a_real_terminal(daemon: Daemon) -> None:
    identifier = create(daemon, cwd="/usr")
    assert not daemon.call("GET", f"/pty/{identifier}").json()["launch_attempted"]
    with attach(daemon, identifier) as client:
        connected = {"type": "connected", "session_id": identifier, "mode": "pty", "offset": 0}
        assert client.receive_json() == connected
        client.send_json(type="resize", cols=101, rows=31)
        client.type("stty size; tty; pwd; ps -o tty= -p $$ | tr p P\n")
        seen = client.output_until(b"Pts/")
        assert b"31 101" in seen
        assert b"/dev/pts/" in seen
        client.send_json(type="ping")
        while (message := client.receive())[0] != TEXT:
            pass
        assert message[1] == b'{"type": "pong"}'
        client.type("exit 5\n")
        while (message := client.receive())[0] != TEXT:
            pass
        assert message[1] == b'{"type": "exit", "exit_code": 5}'
        assert client.close_code() == 1000
    status = daemon.call("GET", f"/pty/{identifier}").json()
    assert (status["running"], status["exit_code"]) == (False, 5)
    with attach(daemon, identifier) as client:
        assert b"31 101" in client.output_until(b"31 101")


def test_ctrl_c_and_signals_reach_the_foreground(daemon: Daemon) -> None:
    with attach(daemon, create(daemon)) as client:
        client.type("PS1='<'prompt'>'\n")
        client.output_until(b"<prompt>")
        client.type("sh -c 'echo first$((1+1)); exec sleep 300'\n")
        client.output_until(b"first2")
        client.type("\x03")
        client.output_until(b"<prompt>")
        client.type("sh -c 'echo second$((1+1)); exec sleep 300'\n")
        client.output_until(b"second2")
        client.send_json(type="signal", signal="SIGINT")
        client.output_until(b"<prompt>")


def test_replay_from_an_offset(daemon: Daemon) -> None:
    identifier = create(daemon, command="echo 0123456789; cat")
    with attach(daemon, identifier, "?pty=0") as client:
        client.output_until(b"9\n")
    with attach(daemon, identifier, "?since=4") as client:
        opcode, payload = client.receive()
        assert (opcode, payload) == (BINARY, b"\x03" + struct.pack("!Q", 4) + b"456789\n")
        assert client.receive_json()["mode"] == "pipe"
        client.type("more\n")
        assert client.receive() == (BINARY, b"\x01more\n")


def test_pipe_mode_tells_stdout_from_stderr(daemon: Daemon) -> None:
    with attach(daemon, create(daemon, command="echo out; read x; echo err >&2"), "?pty=0") as client:
        client.receive_json()
        assert client.receive() == (BINARY, b"\x01out\n")
        client.type("go\n")
        assert client.receive() == (BINARY, b"\x02err\n")
        assert client.receive_json() == {"type": "exit", "exit_code": 0}


def test_one_client_at_a_time_unless_it_takes_over(daemon: Daemon) -> None:
    identifier = create(daemon, command="echo hello; cat")
    with attach(daemon, identifier, "?pty=0") as first:
        first.output_until(b"hello\n")
        with attach(daemon, identifier) as refused:
            assert refused.status == 409
        with attach(daemon, identifier, "?takeover=1") as second:
            assert first.close_code() == 4001
            assert b"hello" in second.output_until(b"hello")
            second.type("mine\n")
            second.output_until(b"mine")


def test_a_client_that_does_not_read_can_be_taken_over(daemon: Daemon) -> None:
    identifier = create(daemon, command="yes")
    with attach(daemon, identifier), attach(daemon, identifier, "?takeover=1") as second:
        assert second.status == 101
        second.output_until(b"y")


def test_deleting_a_terminal_ends_its_shell(daemon: Daemon) -> None:
    identifier = create(daemon, command="echo $$; exec sleep 300")
    with attach(daemon, identifier, "?pty=0") as client:
        pid = int(client.output_until(b"\n"))
        assert daemon.call("DELETE", f"/pty/{identifier}").status == 200
        eventually(lambda: not alive(pid))
    assert daemon.call("GET", f"/pty/{identifier}").status == 404
    assert handshake(daemon, identifier) == 404


def test_bad_frames_get_an_answer(daemon: Daemon) -> None:
    with attach(daemon, create(daemon, command="cat"), "?pty=0") as client:
        client.receive_json()
        unknown_signal = b'{"type": "signal", "signal": "SIGNOPE"}'
        for text in (b"{", b"[]", b'{"type": "dance"}', unknown_signal, b'{"type": "resize"}'):
            client.send(TEXT, text)
            assert client.receive_json()["code"] == "INVALID_FRAME"
        client.type("still here\n")
        client.output_until(b"still here")


def test_fragments_pings_and_the_closing_handshake(daemon: Daemon) -> None:
    with attach(daemon, create(daemon, command="cat"), "?pty=0") as client:
        client.receive_json()
        client.send(BINARY, b"\0frag", final=False)
        client.send(PING, b"are you there")
        client.send(0, b"mented\n")
        assert client.receive() == (PONG, b"are you there")
        assert client.receive() == (BINARY, b"\x01fragmented\n")
        client.send(CLOSE, struct.pack("!H", 1001))
        assert client.close_code() == 1001


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\x01x", 1002),
        (b"\xc2\x80abcd", 1002),
        (b"\x83\x80abcd", 1002),
        (b"\x09\x80abcd", 1002),
        (b"\x89\xfe\x00\x80abcd", 1002),
        (b"\x80\x80abcd", 1002),
        (b"\x88\x81abcdx", 1002),
        (b"\x81\x81\x00\x00\x00\x00\xff", 1007),
        (b"\x82\xff" + struct.pack("!Q", 1 << 40) + b"abcd", 1009),
    ],
)
def test_broken_frames_end_the_conversation(daemon: Daemon, frame: bytes, code: int) -> None:
    with attach(daemon, create(daemon, command="cat"), "?pty=0") as client:
        client.receive_json()
        client.send_raw(frame)
        assert client.close_code() == code
    assert daemon.call("GET", "/ping").status == 200


def test_handshakes_and_the_token_in_the_query(daemon: Daemon) -> None:
    identifier = create(daemon, command="cat")
    token = TOKEN.replace(" ", "%20")
    assert handshake(daemon, identifier, X_EXECD_ACCESS_TOKEN="") == 401
    assert handshake(daemon, identifier, Sec_WebSocket_Version="8") == 400
    assert handshake(daemon, identifier, Sec_WebSocket_Key="short") == 400
    assert daemon.call("GET", f"/pty/{identifier}/ws").status == 426
    assert handshake(daemon, identifier, f"?token={token}", X_EXECD_ACCESS_TOKEN="") == 101
