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

from tests.integration.live.rfb_client import (
    CONTROL,
    SHIFT,
    ClosedByServer,
    RfbClient,
    UpgradeRefused,
    open_desktop_viewer,
    pointer,
)
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
event_log = open("/tmp/received_events", "a", buffering=1)
event_log.write("ready\\n")
names = {X.KeyPress: "down", X.KeyRelease: "up", X.ButtonPress: "press", X.ButtonRelease: "release"}
while True:
    event = d.next_event()
    if event.type in (X.KeyPress, X.KeyRelease):
        event_log.write("%s %s\\n" % (names[event.type], d.keycode_to_keysym(event.detail, 0)))
    elif event.type in (X.ButtonPress, X.ButtonRelease):
        event_log.write("%s %d at %d,%d\\n" % (names[event.type], event.detail, event.event_x, event.event_y))
    elif event.type == X.MotionNotify:
        event_log.write("move %d,%d\\n" % (event.event_x, event.event_y))
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
        with open_desktop_viewer(server, made):
            pass  # The display is up.
        text, code = run_in_sandbox(
            client, made, f"cat >/tmp/witness.py <<'END'\n{WITNESS}\nEND\n(setsid python3 /tmp/witness.py &)"
        )
        assert code == 0, text
        eventually(lambda: "ready" in received_events(client, made))
        yield made


def received_events(client: httpx.Client, sandbox: str) -> list[str]:
    """Return the events that the X client in the sandbox received."""
    return run_in_sandbox(client, sandbox, "cat /tmp/received_events 2>/dev/null; true")[0].splitlines()


def take_input(client: httpx.Client, sandbox: str, viewer: str, *, force: bool = True) -> httpx.Response:
    return client.post(
        f"/v1/sandboxes/{sandbox}/input", json={"viewer": viewer, "name": viewer.title(), "force": force}
    )


def pointer_position(client: httpx.Client, sandbox: str) -> tuple[int, int]:
    """Return the mouse position according to the X server."""
    x, y = run_in_sandbox(client, sandbox, f"python3 -c '{WHERE}'")[0].split()
    return int(x), int(y)


def wait_for_events(client: httpx.Client, sandbox: str, *lines: str) -> list[str]:
    """Wait until the X client has received these events; return all it has received."""

    def found() -> list[str]:
        events = received_events(client, sandbox)
        return events if all(line in events for line in lines) else []

    return eventually(found)


def test_a_viewer_sees_the_screen(server: Server, sandbox: str) -> None:
    with open_desktop_viewer(server, sandbox) as viewer:
        assert (viewer.width, viewer.height) == (1280, 800)
        # The window of the program in the sandbox is all of the screen.
        assert set(struct.unpack("<64I", viewer.fetch_pixels())) == {0x204060}


def test_only_input_of_the_holder_reaches_x(server: Server, client: httpx.Client, sandbox: str) -> None:
    with (
        open_desktop_viewer(server, sandbox, "ada") as ada,
        open_desktop_viewer(server, sandbox, "eve") as eve,
        open_desktop_viewer(server, sandbox) as anonymous,
    ):
        assert take_input(client, sandbox, "ada").json()["holder"]["name"] == "Ada"
        ada.point(100, 100)
        wait_for_events(client, sandbox, "move 100,100")
        for intruder in (eve, anonymous):
            intruder.point(300, 300)
            intruder.point(300, 300, 1)
            intruder.point(300, 300, 0)
            intruder.press("e")
            intruder.send(struct.pack(">BBHII", 255, 0, 1, ord("e"), 18))
            intruder.fetch_pixels()  # Earlier messages have been handled now.
        ada.press("a")
        ada.point(110, 120, 1)
        ada.point(110, 120, 0)
        events = wait_for_events(
            client, sandbox, f"down {ord('a')}", f"up {ord('a')}", "press 1 at 110,120", "release 1 at 110,120"
        )
        assert not [line for line in events if "300" in line or line.endswith(f" {ord('e')}")]
        assert pointer_position(client, sandbox) == (110, 120)


def test_no_input_passes_without_a_holder(server: Server, client: httpx.Client, sandbox: str) -> None:
    client.delete(f"/v1/sandboxes/{sandbox}/input", params={"viewer": "x", "force": True})
    with open_desktop_viewer(server, sandbox, "ada") as ada:
        ada.point(400, 400)
        ada.press("q")
        ada.fetch_pixels()
        take_input(client, sandbox, "ada")
        ada.press("w")
        events = wait_for_events(client, sandbox, f"up {ord('w')}")
    assert f"down {ord('q')}" not in events and "move 400,400" not in events


def test_read_only_key_cannot_send_input_with_a_viewer_id(server: Server, client: httpx.Client, sandbox: str) -> None:
    secret = client.post("/v1/keys", json={"name": "reader", "scopes": ["sandboxes:read", "tenant:all"]}).json()[
        "secret"
    ]
    path = f"/v1/sandboxes/{sandbox}/desktop"
    with open_desktop_viewer(server, sandbox, "ada") as ada, RfbClient(server, path, key=secret, viewer="ada") as eve:
        take_input(client, sandbox, "ada")
        eve.perform_handshake()
        eve.press("z")
        eve.fetch_pixels()
        ada.press("x")
        assert f"down {ord('z')}" not in wait_for_events(client, sandbox, f"up {ord('x')}")


def test_pressed_keys_are_released_on_takeover(server: Server, client: httpx.Client, sandbox: str) -> None:
    with open_desktop_viewer(server, sandbox, "ada") as ada, open_desktop_viewer(server, sandbox, "bob") as bob:
        take_input(client, sandbox, "ada")
        ada.send(struct.pack(">BBxxI", 4, 1, SHIFT))
        ada.point(200, 210, 4)
        wait_for_events(client, sandbox, f"down {SHIFT}", "press 3 at 200,210")
        take_input(client, sandbox, "bob")
        events = wait_for_events(client, sandbox, f"up {SHIFT}", "release 3 at 200,210")
        assert events.index(f"up {SHIFT}") > events.index(f"down {SHIFT}")
        ada.point(201, 211)
        ada.fetch_pixels()
        bob.point(220, 230)
        assert "move 201,211" not in wait_for_events(client, sandbox, "move 220,230")


def test_disconnected_holder_loses_input_and_pressed_keys(server: Server, client: httpx.Client, sandbox: str) -> None:
    with open_desktop_viewer(server, sandbox, "ghost") as ghost:
        take_input(client, sandbox, "ghost")
        ghost.send(struct.pack(">BBxxI", 4, 1, CONTROL))
        ghost.point(333, 334, 2)
        wait_for_events(client, sandbox, f"down {CONTROL}", "press 2 at 333,334")
        ghost.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for_events(client, sandbox, f"up {CONTROL}", "release 2 at 333,334")
    # The viewer may reconnect.
    assert client.get(f"/v1/sandboxes/{sandbox}/input").json()["holder"]["viewer"] == "ghost"
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}/input").json() == {"holder": None})


def test_ten_thousand_pointer_moves_a_second_do_not_lag(server: Server, client: httpx.Client, sandbox: str) -> None:
    with open_desktop_viewer(server, sandbox, "ada") as ada:
        take_input(client, sandbox, "ada")
        batches = [b"".join(ada.frame(pointer(i % 1000, (i + j) % 700)) for j in range(100)) for i in range(100)]
        started = time.monotonic()
        for number, batch in enumerate(batches):
            ada.socket.sendall(batch)
            time.sleep(max(0.0, started + number / 100 - time.monotonic()))
        ada.point(777, 555)
        ada.fetch_pixels()  # Answered in the order of the messages.
        took = time.monotonic() - started
        assert pointer_position(client, sandbox) == (777, 555)
        assert took < 3, took


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b"\x16\x03\x01 this is TLS", 1002, "not RFB"),
        (b"RFB 003.008\n\1\1\xfa", 1002, "message 250 is not supported"),
        (b"RFB 003.008\n\1\1" + struct.pack(">B3xi", 6, 2**30), 1009, "clipboard"),
    ],
)
def test_invalid_rfb_is_disconnected(server: Server, sandbox: str, data: bytes, code: int, reason: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.send(data)
        close_frame = viewer.wait_until_closed()
    assert close_frame[0] == code and reason in close_frame[1]


def test_invalid_frames_are_disconnected(server: Server, sandbox: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.socket.sendall(b"\xff" * 100)
        assert viewer.wait_until_closed()[0] == 1002
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as viewer:
        viewer.socket.sendall(viewer.frame(b"hello", opcode=1))
        assert viewer.wait_until_closed()[0] == 1003


def test_twenty_viewers_are_served_next_to_a_stalled_one(server: Server, client: httpx.Client, sandbox: str) -> None:
    with ExitStack() as held, ThreadPoolExecutor(20) as pool:
        lazy = RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", receive_buffer=2**14)
        held.enter_context(lazy)
        lazy.perform_handshake()
        for _ in range(20):
            lazy.request_update(1280, 800)  # Four megabytes each, and not one is read.
        viewers = [held.enter_context(open_desktop_viewer(server, sandbox)) for _ in range(20)]
        pictures = list(pool.map(lambda viewer: viewer.fetch_pixels(1280, 800), viewers))
        assert len({len(picture) for picture in pictures}) == 1
        assert len(pictures[0]) == 1280 * 800 * 4
        assert client.get("/healthz").elapsed.total_seconds() < 1
        # A viewer that resumes reading has missed nothing.
        assert lazy.read(4)[:1] == b"\0"


def test_number_of_viewers_is_bounded(server: Server, client: httpx.Client) -> None:
    with desktop(client) as sandbox, ExitStack() as held:
        for _ in range(24):
            held.enter_context(open_desktop_viewer(server, sandbox))
        with pytest.raises(UpgradeRefused, match=r"live\.viewers") as refused:
            RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop")
        assert refused.value.status == 429


def test_killed_display_restarts(server: Server, client: httpx.Client) -> None:
    with desktop(client) as sandbox:
        with open_desktop_viewer(server, sandbox) as viewer:
            run_in_sandbox(client, sandbox, "pkill -KILL -x Xvnc")
            assert viewer.wait_until_closed() == (1012, "the display has ended; connect again")

        def shown() -> bool:
            try:
                with open_desktop_viewer(server, sandbox) as viewer:
                    return bool(viewer.fetch_pixels())
            except ClosedByServer as closed:
                if closed.code != 1012:
                    raise
                return False  # That was still the old display.

        eventually(shown)


def test_viewers_of_a_deleted_sandbox_get_the_reason(server: Server, client: httpx.Client) -> None:
    with (
        desktop(client) as sandbox,
        open_desktop_viewer(server, sandbox) as one,
        open_desktop_viewer(server, sandbox) as other,
    ):
        client.delete(f"/v1/sandboxes/{sandbox}")
        assert one.wait_until_closed() == other.wait_until_closed() == (1000, "the sandbox has ended")
        with pytest.raises(UpgradeRefused) as refused:
            RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop")
        assert refused.value.status == 404


def test_sandbox_without_a_display_is_reported(server: Server, client: httpx.Client) -> None:
    made = client.post("/v1/sandboxes", json={"image": {"uri": "host"}}).json()["id"]
    with pytest.raises(UpgradeRefused, match="no display") as refused:
        RfbClient(server, f"/v1/sandboxes/{made}/desktop")
    assert refused.value.status == 503
    client.delete(f"/v1/sandboxes/{made}")


def test_connection_without_key_is_rejected(server: Server, client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/desktop"
    stranger = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    for key, status in (("", 401), ("pdk_nonsense", 401), (stranger, 404)):
        with pytest.raises(UpgradeRefused) as refused:
            RfbClient(server, path, key=key)
        assert refused.value.status == status


def test_a_ticket_opens_one_connection(server: Server, client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/desktop"
    ticket = client.post("/v1/tickets", json={"path": path}).json()["ticket"]
    with RfbClient(server, path, key="", ticket=ticket) as viewer:
        viewer.perform_handshake().fetch_pixels()
    with pytest.raises(UpgradeRefused, match="used") as refused:
        RfbClient(server, path, key="", ticket=ticket)
    assert refused.value.status == 401
    elsewhere = client.post("/v1/tickets", json={"path": "/v1/screens"}).json()["ticket"]
    with pytest.raises(UpgradeRefused, match="only"):
        RfbClient(server, path, key="", ticket=elsewhere)
    # It is good for WebSockets alone.
    whole = client.post("/v1/tickets").json()["ticket"]
    with server.client(key="") as anonymous:
        assert anonymous.get("/v1/sandboxes", params={"ticket": whole}).status_code == 401


def test_ticket_is_revoked_with_its_key(server: Server, client: httpx.Client, sandbox: str) -> None:
    made = client.post("/v1/keys", json={"name": "brief"}).json()
    with server.client(made["secret"]) as brief:
        ticket = brief.post("/v1/tickets").json()["ticket"]
    client.delete(f"/v1/keys/{made['id']}")
    with pytest.raises(UpgradeRefused) as refused:
        RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", key="", ticket=ticket)
    assert refused.value.status == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://", "http://127.0.0.1:1"])
def test_foreign_pages_may_not_connect(server: Server, sandbox: str, origin: str) -> None:
    with pytest.raises(UpgradeRefused, match="cors_origins") as refused:
        RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", origin=origin)
    assert refused.value.status == 403


def test_own_pages_may_connect(server: Server, sandbox: str) -> None:
    with RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop", origin=server.url) as viewer:
        viewer.perform_handshake().fetch_pixels()


def test_stopping_server_disconnects_viewers_at_once(tmp_path: Path) -> None:
    share_screen_images(tmp_path / "data", IMAGE)
    with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0, "default_image": IMAGE}}) as server:
        with server.client() as client:
            sandbox = str(client.post("/v1/sandboxes", json={}).json()["id"])
            take_input(client, sandbox, "ada")
        with (
            open_desktop_viewer(server, sandbox, "ada") as viewer,
            RfbClient(server, f"/v1/sandboxes/{sandbox}/desktop") as lazy,
        ):
            lazy.perform_handshake()
            for _ in range(20):
                lazy.request_update(1280, 800)
            started = time.monotonic()
            server.stop(signal.SIGTERM)
            assert time.monotonic() - started < 4
            assert viewer.wait_until_closed()[0] == 1001
        server.start()
        with open_desktop_viewer(server, sandbox) as viewer, server.client() as client:
            viewer.fetch_pixels()
            # The event log has the loss of the input.
            assert client.get(f"/v1/sandboxes/{sandbox}/input").json() == {"holder": None}
            path, plain = f"/v1/sandboxes/{sandbox}/events", {"Accept": "application/json"}
            input_events = [
                event for event in client.get(path, headers=plain).json()["items"] if "input" in event["type"]
            ]
            assert [event["type"] for event in input_events] == ["input.taken", "input.released"]
            assert input_events[1]["data"]["reason"] == "server_stopped"
