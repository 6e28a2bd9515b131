"""Recordings of real desktops: begun, stopped, looked into, exported, and found again after a crash."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.live.painted_screens import BLUE, GREEN, RED, Colour, is_like, paint
from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server
from tests.support.server import Server, eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("recordings"), "linux") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "linux") as made:
        yield made


def start(sandbox: Sandbox, **options: Any) -> dict[str, Any]:
    answer = sandbox.client.post(f"{sandbox.path}/recordings", json=options)
    assert answer.status_code == 201, answer.text
    recording: dict[str, Any] = answer.json()
    assert recording["state"] == "recording" and recording["frames"] == 1
    return recording


def stop(sandbox: Sandbox, recording: dict[str, Any]) -> dict[str, Any]:
    answer = sandbox.client.post(f"{sandbox.path}/recordings/{recording['id']}/stop")
    assert answer.status_code == 200, answer.text
    stopped: dict[str, Any] = answer.json()
    return stopped


def shown(sandbox: Sandbox, recording: dict[str, Any]) -> list[bytes]:
    """All pictures, one by one."""
    path = f"{sandbox.path}/recordings/{recording['id']}/frames"
    listed = sandbox.client.get(path).json()["items"]
    pictures = [sandbox.client.get(f"{path}/{number}").content for number in range(len(listed))]
    assert [len(each) for each in pictures] == [each["size"] for each in listed]
    assert sandbox.client.get(f"{path}/{len(listed)}").status_code == 404
    return pictures


@pytest.fixture(scope="module")
def recorded(sandbox: Sandbox) -> dict[str, Any]:
    """A recording in which the screen becomes red, green and blue."""
    recording = start(sandbox, fps=10, quality=80)
    paint(sandbox.client, sandbox.id, RED, GREEN, BLUE, pause=0.4)
    return stop(sandbox, recording)


def test_recording_contains_the_screen_changes(sandbox: Sandbox, recorded: dict[str, Any]) -> None:
    assert recorded["state"] == "stopped" and recorded["reason"] == "stopped"
    assert (recorded["width"], recorded["height"]) == (1280, 800)
    pictures = shown(sandbox, recorded)
    assert len(pictures) == recorded["frames"]
    assert [colour for colour in (RED, GREEN, BLUE) if any(is_like(each, colour) for each in pictures[1:])] == [
        RED,
        GREEN,
        BLUE,
    ]
    assert is_like(pictures[-1], BLUE)
    # A screen that stands still costs nothing.
    assert recorded["frames"] < 12


def test_recording_publishes_events(sandbox: Sandbox, recorded: dict[str, Any]) -> None:
    assert {"recording_id": recorded["id"]} in [event["data"] for event in sandbox.events("recording.started")]
    expected = {"recording_id": recorded["id"], "frames": recorded["frames"], "size": recorded["size"]}
    assert {**expected, "reason": "stopped"} in [event["data"] for event in sandbox.events("recording.stopped")]


def test_file_has_the_documented_format_and_byte_ranges(sandbox: Sandbox, recorded: dict[str, Any]) -> None:
    path = f"{sandbox.path}/recordings/{recorded['id']}/file"
    whole = sandbox.client.get(path).content
    assert len(whole) == recorded["size"]
    head, rest = whole.split(b"\n", 1)
    assert json.loads(head)["format"] == "padrec"
    line, rest = rest.split(b"\n", 1)
    first = json.loads(line)
    assert rest[: first["bytes"]] == shown(sandbox, recorded)[0]
    assert rest[first["bytes"] : first["bytes"] + 1] == b"\n"
    part = sandbox.client.get(path, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole[10:20])


@pytest.mark.parametrize(("form", "codec"), [("mp4", "h264"), ("gif", "gif"), ("mkv", "mjpeg")])
def test_recording_is_exported_as_video(
    server: Server, sandbox: Sandbox, recorded: dict[str, Any], tmp_path: Path, form: str, codec: str
) -> None:
    answer = sandbox.client.get(f"{sandbox.path}/recordings/{recorded['id']}/export", params={"format": form})
    assert answer.status_code == 200, answer.text
    video = tmp_path / f"video.{form}"
    video.write_bytes(answer.content)
    seen = probe(video)
    assert seen["streams"][0]["codec_name"] == codec
    last = max(float(packet["pts_time"]) for packet in seen["packets"])
    assert 0.8 < last < 10
    assert len(seen["packets"]) == recorded["frames"] + 1
    eventually(lambda: not list((server.data / "recordings/.films").iterdir()))


def probe(video: Path) -> dict[str, Any]:
    words = ["ffprobe", "-loglevel", "error", "-of", "json", "-show_entries", "packet=pts_time:stream=codec_name"]
    found: dict[str, Any] = json.loads(
        subprocess.run([*words, video], capture_output=True, check=True, timeout=60).stdout
    )
    return found


def test_recording_stops_at_its_limits(sandbox: Sandbox) -> None:
    path = f"{sandbox.path}/recordings"
    short = start(sandbox, maxMinutes=0.002)
    ended = eventually(
        lambda: (now := sandbox.client.get(f"{path}/{short['id']}").json())["state"] == "stopped" and now
    )
    assert ended["reason"] == "time"
    small = start(sandbox, fps=10, maxSize=2**16)
    paint(sandbox.client, sandbox.id, *(RED, GREEN, BLUE) * 4, pause=0.15)
    ended = eventually(
        lambda: (now := sandbox.client.get(f"{path}/{small['id']}").json())["state"] == "stopped" and now
    )
    assert ended["reason"] == "size" and ended["size"] <= 2**16
    assert stop(sandbox, small) == ended


def test_invalid_recording_options_are_rejected(sandbox: Sandbox) -> None:
    path = f"{sandbox.path}/recordings"

    def refusal(**options: Any) -> tuple[int, str]:
        answer = sandbox.client.post(path, json=options)
        return answer.status_code, answer.json()["message"]

    assert refusal(fps=0)[0] == refusal(fps=1000)[0] == refusal(fps="fast")[0] == 400
    assert refusal(quality=0)[0] == refusal(maxSize=1)[0] == 400
    assert refusal(fps=11) == (400, "fps: at most 10 (live.recording_rate)")
    assert refusal(maxMinutes=9999) == (400, "maxMinutes: at most 240 (live.recording_time)")
    assert refusal(speed=1)[0] == 400
    assert sandbox.client.get(f"{path}/rec-0123456789abcdef").status_code == 404
    assert sandbox.client.get(f"{path}/..%2f..%2fsecret").status_code == 404
    assert sandbox.client.get("/v1/sandboxes/sb-0123456789abcdef/recordings").status_code == 404


def test_screen_has_one_recording_at_a_time(sandbox: Sandbox) -> None:
    first = start(sandbox)
    again = sandbox.client.post(f"{sandbox.path}/recordings", json={})
    assert again.status_code == 409 and first["id"] in again.json()["message"]
    stop(sandbox, first)


def test_sandbox_without_a_screen_cannot_be_recorded(sandbox: Sandbox) -> None:
    with sandbox_of(sandbox.client, "code", image={"uri": "host"}) as other:
        answer = sandbox.client.post(f"{other.path}/recordings", json={})
        assert answer.status_code == 404 and "has no screen" in answer.json()["message"]
        assert sandbox.client.get(f"{other.path}/recordings").json() == {"items": []}


def test_other_tenants_do_not_see_a_recording(server: Server, sandbox: Sandbox, recorded: dict[str, Any]) -> None:
    secret = sandbox.client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    with server.client(secret) as stranger:
        assert stranger.get(f"{sandbox.path}/recordings/{recorded['id']}/file").status_code == 404
        assert stranger.get("/v1/recordings").json() == {"items": []}


def test_recording_ends_with_its_sandbox_and_is_kept(client: httpx.Client) -> None:
    with sandbox_of(client, "linux") as made:
        recording = start(made)
    path = f"{made.path}/recordings/{recording['id']}"
    ended = eventually(lambda: (now := client.get(path).json())["state"] == "stopped" and now)
    assert ended["reason"] == "sandbox"
    assert shown(made, recording)
    assert recording["id"] in [each["id"] for each in client.get("/v1/recordings").json()["items"]]
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_recording_is_closed_when_the_server_stops(
    tmp_path_factory: pytest.TempPathFactory, number: signal.Signals
) -> None:
    with screens_server(tmp_path_factory.mktemp("crash"), "linux") as server:
        with server.client() as client:
            answer = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "linux"}})
            sandbox = Sandbox(client, answer.json()["id"])
            eventually(lambda: client.get(f"{sandbox.path}/desktop").json().get("up"))
            recording = start(sandbox)
            paint(client, sandbox.id, RED)
            path = f"{sandbox.path}/recordings/{recording['id']}"
            eventually(lambda: _last_is(sandbox, path, RED))
        server.stop(number)
        if number is signal.SIGKILL:
            with (server.data / "recordings/default" / f"{recording['id']}.padrec").open("ab") as file:
                file.write(b'{"n":99,"at":1.0,"width":1,"height":1,"bytes":1000}\nhalf a pict')
        server.start()
        with server.client() as client:
            ended = client.get(path).json()
            assert ended["state"] == "stopped" and ended["reason"] == "server"
            again = Sandbox(client, sandbox.id)
            pictures = shown(again, recording)
            assert len(pictures) == ended["frames"]
            assert any(is_like(each, RED) for each in pictures)
            recording_ids = [event["data"]["recording_id"] for event in again.events("recording.stopped")]
            assert recording_ids == [recording["id"]]


def _last_is(sandbox: Sandbox, path: str, colour: Colour) -> bool:
    frames = sandbox.client.get(path).json()["frames"]
    return frames > 0 and is_like(sandbox.client.get(f"{path}/frames/{frames - 1}").content, colour)
