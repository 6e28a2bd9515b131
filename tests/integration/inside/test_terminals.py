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


def test_shell_runs_on_a_real_terminal(daemon: Daemon) -> None:
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


def test_shell_starts_with_the_size_of_its_first_client(daemon: Daemon) -> None:
    identifier = create(daemon, command="stty size")
    with attach(daemon, identifier, "?cols=61&rows=21") as client:
        assert b"21 61" in client.output_until(b"\n")
    with attach(daemon, identifier, "?cols=90&rows=30"):
        status = daemon.call("GET", f"/pty/{identifier}").json()
        assert (status["cols"], status["rows"]) == (61, 21)


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


def test_pipe_mode_separates_stdout_and_stderr(daemon: Daemon) -> None:
    with attach(daemon, create(daemon, command="echo out; read x; echo err >&2"), "?pty=0") as client:
        client.receive_json()
        assert client.receive() == (BINARY, b"\x01out\n")
        client.type("go\n")
        assert client.receive() == (BINARY, b"\x02err\n")
        assert client.receive_json() == {"type": "exit", "exit_code": 0}


def test_second_client_is_refused_unless_it_takes_over(daemon: Daemon) -> None:
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


def test_stalled_client_can_be_taken_over(daemon: Daemon) -> None:
    identifier = create(daemon, command="yes")
    with attach(daemon, identifier), attach(daemon, identifier, "?takeover=1") as second:
        assert second.status == 101
        second.output_until(b"y")


def test_deleting_a_terminal_ends_its_shell(daemon: Daemon) -> None:
    identifier = create(daemon, command="echo $$; exec sleep 300")
    with attach(daemon, identifier, "?pty=0") as client:
        pid = int(client.output_until(b"\n"))
        assert daemon.call("DELETE", f"/pty/{identifier}").status == 200
        assert client.close_code() in (4002, 1000)
        eventually(lambda: not alive(pid))
    assert daemon.call("GET", f"/pty/{identifier}").status == 404
    assert handshake(daemon, identifier) == 404


def test_invalid_control_messages_get_an_error(daemon: Daemon) -> None:
    with attach(daemon, create(daemon, command="cat"), "?pty=0") as client:
        client.receive_json()
        unknown_signal = b'{"type": "signal", "signal": "SIGNOPE"}'
        for text in (b"{", b"[]", b'{"type": "dance"}', unknown_signal, b'{"type": "resize"}'):
            client.send(TEXT, text)
            assert client.receive_json()["code"] == "INVALID_FRAME"
        client.type("still here\n")
        client.output_until(b"still here")


def test_fragments_pings_and_closing_handshake_are_handled(daemon: Daemon) -> None:
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
def test_malformed_frames_close_the_connection(daemon: Daemon, frame: bytes, code: int) -> None:
    with attach(daemon, create(daemon, command="cat"), "?pty=0") as client:
        client.receive_json()
        client.send_raw(frame)
        assert client.close_code() == code
    assert daemon.call("GET", "/ping").status == 200


def test_handshake_accepts_the_token_in_the_query(daemon: Daemon) -> None:
    identifier = create(daemon, command="cat")
    token = TOKEN.replace(" ", "%20")
    assert handshake(daemon, identifier, X_EXECD_ACCESS_TOKEN="") == 401
    assert handshake(daemon, identifier, Sec_WebSocket_Version="8") == 400
    assert handshake(daemon, identifier, Sec_WebSocket_Key="short") == 400
    assert daemon.call("GET", f"/pty/{identifier}/ws").status == 426
    assert handshake(daemon, identifier, f"?token={token}", X_EXECD_ACCESS_TOKEN="") == 101


def test_named_terminal_is_created_once(daemon: Daemon) -> None:
    first = daemon.call("POST", "/pty", {"id": "main", "command": "echo $$; exec cat"}).json()
    assert (first["session_id"], first["running"], first["output_offset"]) == ("main", False, 0)
    with attach(daemon, "main", "?pty=0") as client:
        pid = client.output_until(b"\n").strip()
    again = daemon.call("POST", "/pty", {"id": "main", "command": "echo other"}).json()
    assert again["running"] and again["output_offset"] == len(pid) + 1
    with attach(daemon, "main") as client:
        assert client.output_until(b"\n").strip() == pid
    for name in ("", "Main", "a/b", "-a", "a" * 64):
        assert daemon.call("POST", "/pty", {"id": name}).status == 400
    assert daemon.call("DELETE", "/pty/main").status == 200
    assert not daemon.call("POST", "/pty", {"id": "main"}).json()["launch_attempted"]


def test_terminals_are_listed(daemon: Daemon) -> None:
    assert daemon.call("GET", "/pty").json() == {"terminals": []}
    daemon.call("POST", "/pty", {"id": "one"})
    with attach(daemon, create(daemon)) as client:
        client.receive_json()
        client.send_json(type="resize", cols=101, rows=31)
        client.send_json(type="ping")
        while client.receive()[0] != TEXT:
            pass
        found = daemon.call("GET", "/pty").json()["terminals"]
        assert [(each["running"], each["cols"], each["rows"]) for each in found] == [(False, 80, 24), (True, 101, 31)]


def test_reconnecting_clients_see_all_output_exactly_once(daemon: Daemon) -> None:
    """Each says how far the one before it has read, as a server does that was started anew."""
    daemon.call("POST", "/pty", {"id": "main", "command": "exec cat"})
    seen = b""
    for number in range(5):
        with attach(daemon, "main", f"?pty=0&since={len(seen)}") as client:
            connected = client.receive_json()
            assert (connected["type"], connected["offset"]) == ("connected", len(seen))
            client.type(f"line {number}\n")
            seen += client.output_until(b"\n")
        with attach(daemon, "main", f"?since={len(seen)}") as client:
            client.receive_json()
            client.type("unseen\n")
            while daemon.call("GET", "/pty/main").json()["output_offset"] < len(seen) + 7:
                pass
        with attach(daemon, "main", f"?since={len(seen)}") as client:
            seen += client.output_until(b"unseen\n")
    assert seen == b"".join(b"line %d\nunseen\n" % number for number in range(5))


def test_heavy_output_arrives_completely_in_large_pieces(daemon: Daemon) -> None:
    size = 8 * 2**20
    command = f"stty -opost; read go; head -c {size} /dev/zero | tr '\\0' x; exec cat"
    daemon.call("POST", "/pty", {"id": "flood", "command": command})
    with attach(daemon, "flood") as client:
        client.receive_json()
        client.type("\n")
        received, pieces = 0, 0
        while received < size:
            opcode, payload = client.receive()
            if opcode == BINARY:
                assert payload[:1] == b"\x01"
                received += payload.count(b"x")
                pieces += 1
    assert received == size
    assert size / pieces > 4096


def test_long_history_of_single_keys_stays_fast(daemon: Daemon) -> None:
    daemon.call("POST", "/pty", {"id": "keys", "command": "stty raw -echo; echo ready; exec cat"})
    with attach(daemon, "keys") as client:
        client.output_until(b"ready")
        for _ in range(3000):
            client.type("x")
            client.output_until(b"x")
    with attach(daemon, "keys") as client:
        assert client.output_until(b"x" * 3000).endswith(b"x" * 3000)


def test_program_that_stops_reading_does_not_block_clients(daemon: Daemon) -> None:
    """Input waits for a program that never reads; the next client can connect nevertheless."""
    daemon.call("POST", "/pty", {"id": "deaf", "command": "stty raw -echo; echo ready; exec sleep 300"})
    with attach(daemon, "deaf") as first:
        first.output_until(b"ready")
        first.type("x" * 200_000)
        first.send_json(type="ping")
        with attach(daemon, "deaf", "?takeover=1") as second:
            assert second.status == 101
            second.output_until(b"ready")
    with attach(daemon, "deaf") as third:
        assert third.status == 101


def test_input_for_a_slow_program_arrives_completely(daemon: Daemon) -> None:
    text = "".join(f"{number:07}\n" for number in range(20_000))
    command = "sleep 0.1; wc -c"
    daemon.call("POST", "/pty", {"id": "slow", "command": f"head -c {len(text)} | ({command})"})
    with attach(daemon, "slow", "?pty=0") as client:
        client.receive_json()
        client.type(text)
        assert int(client.output_until(b"\n")) == len(text)
