"""Android devices: the `mobile` image, its `adb`, and a device that only one sandbox may reach."""

from __future__ import annotations

import os
import signal
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, sandbox_of, screens_server
from tests.support.fake_adbd import SCREENSHOT_PNG, FakeAndroidDevice, run_fake_android
from tests.support.server import PADDOCK_COMMAND, Server, eventually, run_in_sandbox

PYTHON = "python3 - <<'END'\n{}\nEND"
HOSTILE = """
import select, socket, time
crowd = []
for _ in range(1000):
    line = socket.socket(socket.AF_UNIX)
    line.connect("/run/paddock/holes/device.sock")
    crowd.append(line)
left, until = 1000, time.monotonic() + 10
while left > 8 and time.monotonic() < until:
    poll = select.poll()
    for line in crowd:
        poll.register(line, select.POLLIN)
    left = 1000 - len(poll.poll(50))
print(left)
"""
FLOOD = """
import socket
line = socket.create_connection(("127.0.0.1", 5555), 20)
line.settimeout(0.5)
sent = 0
try:
    while sent < 2**28:
        sent += line.send(bytes(2**16))
except TimeoutError:
    pass
print(sent)
"""
ECHO = """
import hashlib, os, socket, threading
line = socket.create_connection(("127.0.0.1", 5555), 20)
data = os.urandom(2**20) * 16
threading.Thread(target=line.sendall, args=(data,)).start()
back = hashlib.sha256()
left = len(data)
while left:
    piece = line.recv(2**16)
    assert piece, left
    left -= len(piece)
    back.update(piece)
assert back.digest() == hashlib.sha256(data).digest()
print("whole")
"""
TRY = """
import socket
try:
    line = socket.create_connection(("127.0.0.1", 5555), 5)
    print("closed" if not line.recv(1) else "open")
except OSError as error:
    print(type(error).__name__)
"""


@contextmanager
def listening(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    """A TCP server on the network."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(5)


class EchoHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while piece := self.request.recv(2**16):
            self.request.sendall(piece)


class NonReadingHandler(socketserver.BaseRequestHandler):
    """Reads nothing during the test."""

    over = threading.Event()

    def handle(self) -> None:
        self.over.wait(60)


@pytest.fixture(scope="module")
def pixel() -> Iterator[FakeAndroidDevice]:
    with run_fake_android() as device:
        yield device


@pytest.fixture(scope="module")
def crowded() -> Iterator[FakeAndroidDevice]:
    with run_fake_android() as device:
        yield device


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, pixel: FakeAndroidDevice, crowded: FakeAndroidDevice
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    with listening(EchoHandler) as echo, listening(NonReadingHandler) as deaf:
        devices = {"pixel": pixel.address, "crowded": crowded.address, "echo": echo, "deaf": deaf}
        with screens_server(directory, "mobile", live={"devices": devices}) as running:
            yield running
        NonReadingHandler.over.set()


@pytest.fixture(scope="module")
def phone(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "mobile", extensions={"paddock.device": "pixel"}) as made:
        yield made


@pytest.fixture
def device(pixel: FakeAndroidDevice) -> FakeAndroidDevice:
    pixel.write("calls", "")
    pixel.write("field", "")
    return pixel


def test_mobile_tools_control_the_device(phone: Sandbox, device: FakeAndroidDevice) -> None:
    offered = {tool["name"] for tool in phone.client.get(f"{phone.path}/tools").json()["items"]}
    assert {"mobile_click", "mobile_swipe", "mobile_screenshot", "mobile_ui_elements"} <= offered
    assert "1080x2400 (Android)" in phone.text("mobile_get_size")
    assert "The app in front is com.android.launcher/.Home" in phone.text("mobile_click", x=100, y=200)
    phone.call("mobile_click", text="send & go")
    phone.call("mobile_swipe", direction="up")
    phone.call("mobile_input_text", value="it's 100% $HOME")
    assert device.calls("input")[:3] == [
        ["tap", "100", "200"],
        ["tap", "540", "2070"],
        ["swipe", "540", "1800", "540", "600", "300"],
    ]
    assert device.field == "it's 100% $HOME"
    assert data_of(phone.call("mobile_screenshot", format="png")) == SCREENSHOT_PNG


def test_sandbox_document_names_its_device(phone: Sandbox) -> None:
    assert phone.client.get(phone.path).json()["extensions"]["paddock.device"] == "pixel"


def test_adb_itself_works_in_the_sandbox(phone: Sandbox) -> None:
    output, code = run_in_sandbox(phone.client, phone.id, "adb connect $PADDOCK_ADB && adb shell wm size")
    assert code == 0 and output.endswith("Physical size: 1080x2400")


def test_restarted_device_is_offline_and_then_found_again(phone: Sandbox, device: FakeAndroidDevice) -> None:
    phone.call("mobile_click", x=1, y=1)
    device.switch_off()
    try:
        assert "the device pixel is offline" in phone.fails("mobile_click", x=2, y=2)
        output, _ = run_in_sandbox(phone.client, phone.id, PYTHON.format(TRY))
        assert output == "closed"
    finally:
        device.switch_on()
    phone.call("mobile_click", x=3, y=3)
    assert device.calls("input") == [["tap", "1", "1"], ["tap", "3", "3"]]


def test_device_that_rejects_the_key_is_unauthorized(phone: Sandbox, device: FakeAndroidDevice) -> None:
    device.switch_off()
    device.accepts_all_keys = False
    device.switch_on()
    try:
        # ADB calls a device that just came back offline, until they have exchanged keys.
        unauthorized = "the device pixel is unauthorized: accept the request"
        eventually(lambda: unauthorized in phone.fails("mobile_click", x=1, y=1))
    finally:
        device.accept()
    phone.call("mobile_click", x=2, y=2)
    assert device.calls("input") == [["tap", "2", "2"]]


def test_sandbox_has_at_most_eight_device_connections(
    server: Server, client: httpx.Client, crowded: FakeAndroidDevice
) -> None:
    with sandbox_of(client, "mobile", extensions={"paddock.device": "crowded"}) as sandbox:
        assert run_in_sandbox(client, sandbox.id, PYTHON.format(HOSTILE)) == ("8", 0)
        assert 0 < crowded.max_connections <= 8
        # The device is available again to other connections.
        eventually(lambda: not crowded.connections)
        sandbox.call("mobile_click", x=5, y=5)
    assert crowded.calls("input") == [["tap", "5", "5"]]
    assert "Traceback" not in server.log()


def test_all_bytes_pass_both_ways(client: httpx.Client) -> None:
    with sandbox_of(client, "mobile", extensions={"paddock.device": "echo"}) as sandbox:
        assert run_in_sandbox(client, sandbox.id, PYTHON.format(ECHO)) == ("whole", 0)


def test_stalled_device_blocks_the_writer(client: httpx.Client) -> None:
    with sandbox_of(client, "mobile", extensions={"paddock.device": "deaf"}) as sandbox:
        output, code = run_in_sandbox(client, sandbox.id, PYTHON.format(FLOOD))
        assert code == 0 and int(output) < 2**26


def test_sandbox_without_a_device_cannot_reach_one(client: httpx.Client) -> None:
    with sandbox_of(client, "mobile") as sandbox:
        assert run_in_sandbox(client, sandbox.id, PYTHON.format(TRY)) == ("ConnectionRefusedError", 0)
        assert (
            run_in_sandbox(client, sandbox.id, "ls /run/paddock/holes | grep -c device; env | grep -c PADDOCK_ADB")[0]
            == "0\n0"
        )
        assert "Mobile (web)" in sandbox.text("mobile_get_size")


def test_device_connections_end_with_the_sandbox(client: httpx.Client, crowded: FakeAndroidDevice) -> None:
    with sandbox_of(client, "mobile", extensions={"paddock.device": "crowded"}) as sandbox:
        sandbox.call("mobile_click", x=1, y=1)
        assert crowded.connections
    eventually(lambda: not crowded.connections)


@pytest.mark.parametrize(
    ("extensions", "expected_message"),
    [
        (
            {"paddock.kind": "mobile", "paddock.device": "pixl"},
            "did you mean pixel? known are: pixel, crowded, echo, deaf",
        ),
        (
            {"paddock.kind": "mobile", "paddock.device": ""},
            "there is no device ''; known are: pixel, crowded, echo, deaf",
        ),
        ({"paddock.kind": "mobile", "paddock.device": "10.0.0.1:5555"}, "known are: pixel, crowded, echo, deaf"),
        ({"paddock.kind": "code", "paddock.device": "pixel"}, "devices are for sandboxes of kind mobile"),
        ({"paddock.device": "pixel"}, "devices are for sandboxes of kind mobile"),
    ],
)
def test_invalid_device_requests_are_refused(
    client: httpx.Client, extensions: dict[str, str], expected_message: str
) -> None:
    answer = client.post("/v1/sandboxes", json={"extensions": extensions})
    assert answer.status_code == 400 and expected_message in answer.text, answer.text


def test_other_tenants_have_a_device_only_if_configured(server: Server, client: httpx.Client) -> None:
    secret = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    with server.client(secret) as stranger:
        device_extensions = {"paddock.kind": "mobile", "paddock.device": "pixel"}
        answer = stranger.post("/v1/sandboxes", json={"extensions": device_extensions})
        assert answer.status_code == 403 and "add the tenant to live.devices_for" in answer.text
        assert stranger.get("/v1/sandboxes").json()["items"] == []


def test_device_works_without_the_desktop(phone: Sandbox, device: FakeAndroidDevice) -> None:
    assert phone.client.delete(f"{phone.path}/desktop").is_success
    phone.call("mobile_click", x=9, y=9)
    assert device.calls("input") == [["tap", "9", "9"]]
    assert data_of(phone.call("mobile_screenshot", format="png")) == SCREENSHOT_PNG


def test_command_line_selects_a_device(server: Server, client: httpx.Client, device: FakeAndroidDevice) -> None:
    def paddock(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(server.data.parent), "PADDOCK_DATA": str(server.data)}
        return subprocess.run([PADDOCK_COMMAND, *words], env=environment, capture_output=True, text=True, timeout=60)

    made = paddock("sandbox", "create", "--kind", "mobile", "--device", "pixel", "-q")
    assert made.returncode == 0, made.stderr
    called = paddock("tool", "call", made.stdout.strip(), "mobile_click", "x=7", "y=8")
    assert called.returncode == 0, called.stderr
    assert device.calls("input") == [["tap", "7", "8"]]
    client.delete(f"/v1/sandboxes/{made.stdout.strip()}")
    wrong = paddock("sandbox", "create", "--device", "nokia")
    assert wrong.returncode != 0 and "known are: pixel, crowded, echo, deaf" in wrong.stderr


def test_next_server_connects_to_the_device_again(tmp_path: Path) -> None:
    with (
        run_fake_android() as device,
        screens_server(tmp_path, "mobile", live={"devices": {"it": device.address}}) as here,
    ):
        with here.client() as client:
            made = client.post(
                "/v1/sandboxes", json={"extensions": {"paddock.kind": "mobile", "paddock.device": "it"}}
            ).json()["id"]
            Sandbox(client, made).call("mobile_click", x=1, y=1)
        here.stop(signal.SIGKILL)
        here.start()
        with here.client() as client:
            Sandbox(client, made).call("mobile_click", x=2, y=2)
        assert device.calls("input") == [["tap", "1", "1"], ["tap", "2", "2"]]
        here.stop()
        here.settings = {**here.settings, "live": {"devices": {}}}
        here.start()
        with here.client() as client:
            assert "the device it is offline" in Sandbox(client, made).fails("mobile_click", x=3, y=3)
        assert not device.connections
