"""Desktops through the server: many viewers, one holder of the input, hostile clients and displays."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.live.rfb_client import CONTROL, SHIFT, Closed, Refused, RfbClient, pointer, watching
from tests.support.screen_images import share_screen_images
from tests.support.server import Server, eventually, run_in_sandbox, run_server

IMAGE = "screen-base"
WITNESS = """
import sys
from Xlib import X, display
d = display.Display()
screen = d.screen()
mask = X.KeyPressMask | X.KeyReleaseMask | X.ButtonPressMask | X.ButtonReleaseMask | X.PointerMotionMask
window = screen.root.create_window(0, 0, screen.width_in_pixels, screen.height_in_pixels, 0, screen.root_depth,
                                   override_redirect=1, event_mask=mask, background_pixel=0x204060)
window.map()
d.sync()
window.set_input_focus(X.RevertToParent, X.CurrentTime)
d.sync()
said = open("/tmp/seen", "a", buffering=1)
said.write("ready\\n")
names = {X.KeyPress: "down", X.KeyRelease: "up", X.ButtonPress: "press", X.ButtonRelease: "release"}
while True:
    event = d.next_event()
    if event.type in (X.KeyPress, X.KeyRelease):
        said.write("%s %s\\n" % (names[event.type], d.keycode_to_keysym(event.detail, 0)))
    elif event.type in (X.ButtonPress, X.ButtonRelease):
        said.write("%s %d at %d,%d\\n" % (names[event.type], event.detail, event.event_x, event.event_y))
    elif event.type == X.MotionNotify:
        said.write("move %d,%d\\n" % (event.event_x, event.event_y))
"""
WHERE = "from Xlib import display; p = display.Display().screen().root.query_pointer(); print(p.root_x, p.root_y)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    share_screen_images(directory / "data", IMAGE)
    with run_server(
        directory, {"sandboxes": {"min_free_disk": 0, "default_image": IMAGE}, "live": {"viewers": 24}}
    ) as made:
        yield made


@contextmanager
def desktop(client: httpx.Client) -> Iterator[str]:
    """A sandbox with a display, in which a program notes what the mouse and the keyboard do."""
    answer = client.post("/v1/sandboxes", json={})
    assert answer.status_code == 202, answer.text
    made = str(answer.json()["id"])
    try:
        yield made
    finally:
        client.delete(f"/v1/sandboxes/{made}")


@pytest.fixture(scope="module")
def sandbox(server: Server, client: httpx.Client) -> Iterator[str]:
    with desktop(client) as made:
        with watching(server, made):
            pass  # The display is up.
        text, code = run_in_sandbox(
            client, made, f"cat >/tmp/witness.py <<'END'\n{WITNESS}\nEND\n(setsid python3 /tmp/witness.py &)"
        )
        assert code == 0, text
        eventually(lambda: "ready" in seen(client, made))
        yield made


def seen(client: httpx.Client, sandbox: str) -> list[str]:
    """Return the events that the X client in the sandbox received."""
    return run_in_sandbox(client, sandbox, "cat /tmp/seen 2>/dev/null; true")[0].splitlines()


def take(client: httpx.Client, sandbox: str, viewer: str, *, force: bool = True) -> httpx.Response:
    return client.post(
        f"/v1/sandboxes/{sandbox}/input", json={"viewer": viewer, "name": viewer.title(), "force": force}
    )


def where(client: httpx.Client, sandbox: str) -> tuple[int, int]:
    """Where the mouse is, by the X server's own word."""
    x, y = run_in_sandbox(client, sandbox, f"python3 -c '{WHERE}'")[0].split()
    return int(x), int(y)


def expect(client: httpx.Client, sandbox: str, *lines: str) -> list[str]:
    """Wait until an X client has been sent these, and return all it was."""

    def found() -> list[str]:
        lately = seen(client, sandbox)
        return lately if all(line in lately for line in lines) else []

    return eventually(found)


def test_a_viewer_sees_the_screen(server: Server, sandbox: str) -> None:
    with watching(server, sandbox) as viewer:
        assert (viewer.width, viewer.height) == (1280, 800)
        # The window of the program in the sandbox is all of the screen.
        assert set(struct.unpack("<64I", viewer.update())) == {0x204060}


def test_what_the_holder_does_reaches_x_and_what_others_do_does_not(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    with (
        watching(server, sandbox, "ada") as ada,
        watching(server, sandbox, "eve") as eve,
        watching(server, sandbox) as nobody,
    ):
        assert take(client, sandbox, "ada").json()["holder"]["name"] == "Ada"
        ada.point(100, 100)
        expect(client, sandbox, "move 100,100")
        for intruder in (eve, nobody):
            intruder.point(300, 300)
            intruder.point(300, 300, 1)
            intruder.point(300, 300, 0)
            intruder.press("e")
            intruder.send(struct.pack(">BBHII", 255, 0, 1, ord("e"), 18))
            intruder.update()  # What came before this has been dealt with.
        ada.press("a")
        ada.point(110, 120, 1)
        ada.point(110, 120, 0)
        lately = expect(
            client, sandbox, f"down {ord('a')}", f"up {ord('a')}", "press 1 at 110,120", "release 1 at 110,120"
        )
        assert not [line for line in lately if "300" in line or line.endswith(f" {ord('e')}")]
        assert where(client, sandbox) == (110, 120)


def test_no_input_passes_without_a_holder(server: Server, client: httpx.Client, sandbox: str) -> None:
    client.delete(f"/v1/sandboxes/{sandbox}/input", params={"viewer": "x", "force": True})
    with watching(server, sandbox, "ada") as ada:
        ada.point(400, 400)
        ada.press("q")
        ada.update()
        take(client, sandbox, "ada")
        ada.press("w")
        lately = expect(client, sandbox, f"up {ord('w')}")
    assert f"down {ord('q')}" not in lately and "move 400,400" not in lately


def test_an_id_alone_gives_no_input_to_a_key_that_may_only_read(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    secret = client.post("/v1/keys", json={"name": "reader", "scopes": ["sandboxes:read", "tenant:all"]}).json()[
        "secret"
    ]
    path = f"/v1/sandboxes/{sandbox}/desktop"
    with watching(server, sandbox, "ada") as ada, RfbClient(server, path, key=secret, viewer="ada") as eve:
        take(client, sandbox, "ada")
        eve.login()
        eve.press("z")
        eve.update()
        ada.press("x")
        assert f"down {ord('z')}" not in expect(client, sandbox, f"up {ord('x')}")


def test_keys_that_are_down_are_lifted_when_another_takes_over(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    with watching(server, sandbox, "ada") as ada, watching(server, sandbox, "bob") as bob:
        take(client, sandbox, "ada")
        ada.send(struct.pack(">BBxxI", 4, 1, SHIFT))
        ada.point(200, 210, 4)
        expect(client, sandbox, f"down {SHIFT}", "press 3 at 200,210")
        take(client, sandbox, "bob")
        lately = expect(client, sandbox, f"up {SHIFT}", "release 3 at 200,210")
        assert lately.index(f"up {SHIFT}") > lately.index(f"down {SHIFT}")
        ada.point(201, 211)
        ada.update()
        bob.point(220, 230)
        assert "move 201,211" not in expect(client, sandbox, "move 220,230")


def test_a_holder_who_vanishes_leaves_nothing_pressed_and_loses_the_input(
    server: Server, client: httpx.Client, sandbox: str
) -> None:
    with watching(server, sandbox, "ghost") as ghost:
        take(client, sandbox, "ghost")
        ghost.send(struct.pack(">BBxxI", 4, 1, CONTROL))
        ghost.point(333, 334, 2)
        expect(client, sandbox, f"down {CONTROL}", "press 2 at 333,334")
        ghost.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    expect(client, sandbox, f"up {CONTROL}", "release 2 at 333,334")
    assert client.get(f"/v1/sandboxes/{sandbox}/input").json()["holder"]["viewer"] == "ghost"  # They may come back.
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}/input").json() == {"holder": None})


def test_ten_thousand_moves_a_second_do_not_lag(server: Server, client: httpx.Client, sandbox: str) -> None:
    with watching(server, sandbox, "ada") as ada:
        take(client, sandbox, "ada")
        batches = [b"".join(ada.frame(pointer(i % 1000, (i + j) % 700)) for j in range(100)) for i in range(100)]
        started = time.monotonic()
        for number, batch in enumerate(batches):
            ada.socket.sendall(batch)
            time.sleep(max(0.0, started + number / 100 - time.monotonic()))
        ada.point(777, 555)
        ada.update()  # Answered in the order of what was sent.
        took = time.monotonic() - started
        assert where(client, sandbox) == (777, 555)
        assert took < 3, took


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        (b"\x16\x03\x01 this is TLS", 1002, "not RFB"),
        (b"RFB 003.008\n\1\1\xfa", 1002, "message 250 is not supported"),
        (b"RFB 003.008\n\1\1" + struct.pack(">B3xi", 6, 2**30), 1009, "clipboard"),
    ],
)
def test_invalid_rfb_is_disconnected(server: Server, sandbox: str, said: bytes, code: int, reason: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.send(said)
        told = viewer.closed()
    assert told[0] == code and reason in told[1]


def test_invalid_frames_are_disconnected(server: Server, sandbox: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.socket.sendall(b"\xff" * 100)
        assert viewer.closed()[0] == 1002
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.socket.sendall(viewer.frame(b"hello", opcode=1))
        assert viewer.closed()[0] == 1003


def test_twenty_viewers_at_once_and_one_that_does_not_read(server: Server, client: httpx.Client, sandbox: str) -> None:
    with ExitStack() as held, ThreadPoolExecutor(20) as pool:
        lazy = RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", receive_buffer=2**14)
        held.enter_context(lazy)
        lazy.login()
        for _ in range(20):
            lazy.ask(1280, 800)  # Four megabytes each, and not one is read.
        viewers = [held.enter_context(watching(server, sandbox)) for _ in range(20)]
        pictures = list(pool.map(lambda viewer: viewer.update(1280, 800), viewers))
        assert len({len(picture) for picture in pictures}) == 1
        assert len(pictures[0]) == 1280 * 800 * 4
        assert client.get("/healthz").elapsed.total_seconds() < 1
        # A viewer that resumes reading has missed nothing.
        assert lazy.read(4)[:1] == b"\0"


def test_there_are_not_more_viewers_than_allowed(server: Server, client: httpx.Client) -> None:
    with desktop(client) as sandbox, ExitStack() as held:
        for _ in range(24):
            held.enter_context(watching(server, sandbox))
        with pytest.raises(Refused, match=r"live\.viewers") as refused:
            RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop")
        assert refused.value.status == 429


def test_a_display_that_is_killed_comes_back(server: Server, client: httpx.Client) -> None:
    with desktop(client) as sandbox:
        with watching(server, sandbox) as viewer:
            run_in_sandbox(client, sandbox, "pkill -KILL -x Xvnc")
            assert viewer.closed() == (1012, "the display has ended; connect again")

        def shown() -> bool:
            try:
                with watching(server, sandbox) as viewer:
                    return bool(viewer.update())
            except Closed as closed:
                if closed.code != 1012:
                    raise
                return False  # That was still the one that is dying.

        eventually(shown)


def test_viewers_of_a_sandbox_that_is_deleted_are_told(server: Server, client: httpx.Client) -> None:
    with desktop(client) as sandbox, watching(server, sandbox) as one, watching(server, sandbox) as other:
        client.delete(f"/v1/sandboxes/{sandbox}")
        assert one.closed() == other.closed() == (1000, "the sandbox has ended")
        with pytest.raises(Refused) as refused:
            RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop")
        assert refused.value.status == 404


def test_a_sandbox_without_a_display_says_so(server: Server, client: httpx.Client) -> None:
    made = client.post("/v1/sandboxes", json={"image": {"uri": "host"}}).json()["id"]
    with pytest.raises(Refused, match="no display") as refused:
        RfbClient(server, f"/v1/sandboxes/{made}/desktop")
    assert refused.value.status == 503
    client.delete(f"/v1/sandboxes/{made}")


def test_connection_without_key_is_rejected(server: Server, client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/desktop"
    stranger = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    for key, status in (("", 401), ("pdk_nonsense", 401), (stranger, 404)):
        with pytest.raises(Refused) as refused:
            RfbClient(server, path, key=key)
        assert refused.value.status == status


def test_a_ticket_opens_one_connection(server: Server, client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/desktop"
    ticket = client.post("/v1/tickets", json={"path": path}).json()["ticket"]
    with RfbClient(server, path, key="", ticket=ticket) as viewer:
        viewer.login().update()
    with pytest.raises(Refused, match="used") as refused:
        RfbClient(server, path, key="", ticket=ticket)
    assert refused.value.status == 401
    elsewhere = client.post("/v1/tickets", json={"path": "/v1/screens"}).json()["ticket"]
    with pytest.raises(Refused, match="only"):
        RfbClient(server, path, key="", ticket=elsewhere)
    # It is good for WebSockets alone.
    whole = client.post("/v1/tickets").json()["ticket"]
    with server.client(key="") as nobody:
        assert nobody.get("/v1/sandboxes", params={"ticket": whole}).status_code == 401


def test_a_ticket_dies_with_its_key(server: Server, client: httpx.Client, sandbox: str) -> None:
    made = client.post("/v1/keys", json={"name": "brief"}).json()
    with server.client(made["secret"]) as brief:
        ticket = brief.post("/v1/tickets").json()["ticket"]
    client.delete(f"/v1/keys/{made['id']}")
    with pytest.raises(Refused) as refused:
        RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", key="", ticket=ticket)
    assert refused.value.status == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://", "http://127.0.0.1:1"])
def test_pages_of_others_may_not_connect(server: Server, sandbox: str, origin: str) -> None:
    with pytest.raises(Refused, match="cors_origins") as refused:
        RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", origin=origin)
    assert refused.value.status == 403


def test_pages_of_the_server_itself_may(server: Server, sandbox: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", origin=server.url) as viewer:
        viewer.login().update()


def test_a_server_that_stops_says_so_and_is_not_held_up(tmp_path: Path) -> None:
    share_screen_images(tmp_path / "data", IMAGE)
    with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0, "default_image": IMAGE}}) as server:
        with server.client() as client:
            sandbox = str(client.post("/v1/sandboxes", json={}).json()["id"])
            take(client, sandbox, "ada")
        with watching(server, sandbox, "ada") as viewer, RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as lazy:
            lazy.login()
            for _ in range(20):
                lazy.ask(1280, 800)
            started = time.monotonic()
            server.stop(signal.SIGTERM)
            assert time.monotonic() - started < 4
            assert viewer.closed()[0] == 1001
        server.start()
        with watching(server, sandbox) as viewer, server.client() as client:
            viewer.update()
            # The holder has lost the input, and the event log says so.
            assert client.get(f"/v1/sandboxes/{sandbox}/input").json() == {"holder": None}
            path, plain = f"/v1/sandboxes/{sandbox}/events", {"Accept": "application/json"}
            told = [event for event in client.get(path, headers=plain).json()["items"] if "input" in event["type"]]
            assert [event["type"] for event in told] == ["input.taken", "input.released"]
            assert told[1]["data"]["reason"] == "server_stopped"
