"""The mobile tools on an Android device: the real `adb` program, and a device that speaks its protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_registry import ToolRegistry
from paddock.inside.tools.tool_result import ToolCallResult
from tests.support.fake_adbd import SCREENSHOT_PNG, FakeAndroidDevice, free_port, run_fake_android

pytestmark = pytest.mark.skipif(shutil.which("adb") is None, reason="the program adb is not installed")


@pytest.fixture(scope="module")
def adb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An adb server for these tests only, with its own keys."""
    before = dict(os.environ)
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(free_port())
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    subprocess.run(["adb", "start-server"], check=True, capture_output=True, timeout=20)
    try:
        yield
    finally:
        subprocess.run(["adb", "kill-server"], check=True, capture_output=True, timeout=20)
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def device(adb_server: None) -> Iterator[FakeAndroidDevice]:
    with run_fake_android() as made:
        yield made


class PhoneToolClient:
    """The tools, called one by one."""

    def __init__(self, cwd: Path) -> None:
        self._registry = ToolRegistry(ToolContext(cwd=str(cwd), kind="mobile"), "mobile")

    def call(self, name: str, /, **arguments: object) -> ToolCallResult:
        return self._registry.call_tool(name, arguments)

    def do(self, name: str, /, **arguments: object) -> ToolCallResult:
        result = self.call(name, **arguments)
        assert not result.error, result.text
        return result

    def fails(self, name: str, /, **arguments: object) -> str:
        result = self.call(name, **arguments)
        assert result.error, result.text
        return result.text


@pytest.fixture
def phone(device: FakeAndroidDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PhoneToolClient:
    monkeypatch.setenv("PADDOCK_ADB", device.address)
    return PhoneToolClient(tmp_path)


def test_phone_reports_kind_and_screen_size(phone: PhoneToolClient) -> None:
    size = phone.do("mobile_get_size")
    assert size.structured == {"width": 1080, "height": 2400} and "(Android)" in size.text


def test_phone_taps_holds_and_swipes(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    tapped = phone.do("mobile_click", x=100.4, y=200)
    assert "The app in front is com.android.launcher/.Home" in tapped.text
    phone.do("mobile_double_click", x=5, y=6)
    phone.do("mobile_long_press", x=7, y=8, seconds=1)
    phone.do("mobile_swipe", start_x=1, start_y=2, end_x=3, end_y=4, seconds=0.25)
    phone.do("mobile_swipe", direction="up")
    assert device.calls("input") == [
        ["tap", "100", "200"],
        ["tap", "5", "6"],
        ["tap", "5", "6"],
        ["swipe", "7", "8", "7", "8", "1000"],
        ["swipe", "1", "2", "3", "4", "250"],
        ["swipe", "540", "1800", "540", "600", "300"],
    ]


def test_element_is_tapped_by_its_text(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    phone.do("mobile_click", text="send & go")
    assert device.calls("input") == [["tap", "540", "2070"]]
    assert "no element on the screen has the text" in phone.fails("mobile_click", text="not there")


@pytest.mark.parametrize(
    "text", ["plain", "two words", 'it\'s "quoted" $HOME `id` \\ ; rm -rf & | <>', "100%s %d %", "a\nb"]
)
def test_ascii_text_is_entered_unchanged(phone: PhoneToolClient, device: FakeAndroidDevice, text: str) -> None:
    phone.do("mobile_input_text", value=text)
    assert device.field == text


def test_other_scripts_are_entered_through_the_keyboard_app(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    text = "你好 😀 𐍈 ñ"
    assert "needs the app ADBKeyboard" in phone.fails("mobile_input_text", value=text)
    device.write("keyboards", "com.android.inputmethod/.Latin\ncom.android.adbkeyboard/.AdbIME\n")
    phone.do("mobile_input_text", value=text, submit=True)
    assert device.field == text + "\n"
    assert device.calls("ime")[-1] == ["set", "com.android.inputmethod/.Latin"], "the user's own keyboard is back"


def test_phone_keys_are_pressed(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    for key, code in (("back", "4"), ("home", "3"), ("enter", "66"), ("volume_up", "24")):
        phone.do("mobile_send_key", key=key)
        assert device.calls("input")[-1] == ["keyevent", code]
    assert "'key' must be one of back" in phone.fails("mobile_send_key", key="any")


def test_apps_are_started_listed_and_stopped(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    assert "The app in front is com.android.settings/.Main" in phone.do("mobile_start_app", app="settings").text
    running = {one["name"]: one["running"] for one in (phone.do("mobile_list_apps").structured or {})["apps"]}
    assert running == {"com.android.settings": True, "org.app": False, "org.apple": False, "org.broken": False}
    phone.do("mobile_stop_app", app="com.android.settings")
    assert device.calls("am")[-1] == ["force-stop", "com.android.settings"]
    phone.do("mobile_start_app", app="https://example.org/?a=1&b='2'")
    assert device.calls("am")[-1] == [
        "start",
        "-a",
        "android.intent.action.VIEW",
        "-d",
        "https://example.org/?a=1&b='2'",
    ]
    phone.do("mobile_start_app", app="org.app/.Main")
    assert device.calls("am")[-1] == ["start", "-n", "org.app/.Main"]


def test_start_failure_is_explained(phone: PhoneToolClient) -> None:
    assert "there is no app 'calendar'" in phone.fails("mobile_start_app", app="calendar")
    assert "several apps have 'org.'" in phone.fails("mobile_start_app", app="org.")
    assert "No activities found" in phone.fails("mobile_start_app", app="org.broken")
    assert "does not exist" in phone.fails("mobile_start_app", app="org.app/nowhere")


def test_screen_elements_are_listed(phone: PhoneToolClient) -> None:
    found = (phone.do("mobile_ui_elements").structured or {})["elements"]
    assert [(one["role"], one["text"], one["bounds"]) for one in found] == [
        ("EditText", "Search 搜索", [40, 200, 1040, 320]),
        ("Button", "Send & go", [400, 2000, 680, 2140]),
    ]
    assert found[0]["editable"] and found[0]["focused"] and found[0]["id"] == "org.app:id/search"
    assert "Send & go" in phone.do("mobile_wait_for", text="send").text
    assert "is not on the screen after 0.2 s" in phone.fails("mobile_wait_for", text="never", timeout=0.2)


@pytest.mark.parametrize(
    ("dump", "expected_error"),
    [
        ("ERROR: could not get idle state.", "could not get idle state"),
        ("<?xml version='1.0'?><hierarchy><node></hierarchy>", "is malformed"),
        ("<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><hierarchy>&b;</hierarchy>", "cannot be parsed"),
    ],
)
def test_device_output_is_untrusted(
    phone: PhoneToolClient, device: FakeAndroidDevice, dump: str, expected_error: str
) -> None:
    device.write("ui.xml", dump)
    assert expected_error in phone.fails("mobile_ui_elements")


def test_phone_screenshot_has_image_type_and_size(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    shot = phone.do("mobile_screenshot", format="png")
    assert shot.images == [(SCREENSHOT_PNG, "image/png")]
    (device.directory / "screen.png").write_bytes(b"")
    assert "returned no output" in phone.fails("mobile_screenshot", format="png")


def test_phone_is_rotated(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    assert "2400x1080" in phone.do("mobile_rotate", orientation="landscape").text
    assert phone.do("mobile_get_size").structured == {"width": 2400, "height": 1080}
    assert ["put", "system", "accelerometer_rotation", "0"] in device.calls("settings")


def test_points_off_the_screen_are_refused(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    assert "outside the screen, which is 1080x2400" in phone.fails("mobile_click", x=1080, y=5)
    assert "outside the screen" in phone.fails("mobile_swipe", start_x=1, start_y=1, end_x=1, end_y=-1)
    assert "give x and y" in phone.fails("mobile_click", x=1)
    assert device.calls("input") == []


def test_missing_device_is_reported(adb_server: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_ADB", f"127.0.0.1:{free_port()}")
    assert "is offline (Connection refused)" in PhoneToolClient(tmp_path).fails("mobile_get_size")
    monkeypatch.setenv("PADDOCK_ADB", "no-such-serial")
    assert "there is no device no-such-serial" in PhoneToolClient(tmp_path).fails("mobile_get_size")


def test_device_is_reconnected_after_a_lost_connection(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    phone.do("mobile_click", x=1, y=1)
    subprocess.run(["adb", "disconnect", device.address], check=True, capture_output=True, timeout=20)
    phone.do("mobile_click", x=2, y=2)
    assert device.calls("input") == [["tap", "1", "1"], ["tap", "2", "2"]]


def test_unauthorized_device_is_reported(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    device.accepts_all_keys = False
    error = phone.fails("mobile_get_size")
    assert f"the device {device.address} is unauthorized: accept the request on its screen" in error
    assert "unauthorized" in phone.fails("mobile_get_size")
    device.accept()
    assert phone.do("mobile_get_size").structured == {"width": 1080, "height": 2400}


def test_switched_off_device_is_offline_at_once(phone: PhoneToolClient, device: FakeAndroidDevice) -> None:
    phone.do("mobile_click", x=1, y=1)
    device.switch_off()
    assert "is offline (Connection refused)" in phone.fails("mobile_click", x=2, y=2)
    device.switch_on()
    phone.do("mobile_click", x=3, y=3)
    assert device.calls("input") == [["tap", "1", "1"], ["tap", "3", "3"]]
