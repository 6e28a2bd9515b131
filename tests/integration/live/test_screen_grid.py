"""Many screens over one WebSocket, of real desktops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from paddock.app.server import build_server
from paddock.config.schema import Config
from paddock.fleet.fleet_requests import SandboxRequest
from tests.integration.live.painted_screens import BLUE, GREEN, RED, Colour, is_like, paint
from tests.integration.live.screen_sandboxes import sandbox_of, screens_server
from tests.integration.live.websocket_clients import TIMEOUT_SECONDS, WebSocketClient
from tests.support.screen_images import share_screen_images
from tests.support.server import Server, run_in_sandbox


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("grid"), "linux") as running:
        yield running


@pytest.fixture(scope="module")
def desktop_ids(client: httpx.Client) -> Iterator[list[str]]:
    """Three desktops."""
    with ExitStack() as held:
        yield [held.enter_context(sandbox_of(client, "linux")).id for _ in range(3)]


class ScreenGridClient(WebSocketClient):
    """A client of the screen grid WebSocket."""

    def __init__(self, server: Server, *, key: str | None = None, **query: object) -> None:
        self.pictures: list[tuple[dict[str, Any], bytes]] = []
        super().__init__(server, "/v1/screens", key=key, **query)

    def handle_binary(self, message: bytes) -> None:
        length = int.from_bytes(message[:4], "big")
        self.pictures.append((json.loads(message[4 : 4 + length]), message[4 + length :]))

    def picture(self, sandbox: str) -> tuple[dict[str, Any], bytes]:
        """The next picture of a sandbox."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            for number, (head, jpeg) in enumerate(self.pictures):
                if head["sandbox"] == sandbox:
                    del self.pictures[number]
                    return head, jpeg
            self.read(deadline)

    def wait_for_colour(self, sandbox: str, colour: Colour) -> dict[str, Any]:
        """Wait until a sandbox shows a colour."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            head, jpeg = self.picture(sandbox)
            if is_like(jpeg, colour):
                return head
        raise AssertionError(f"{sandbox} did not become {colour}")


def refused(server: Server, **query: object) -> int:
    with pytest.raises(InvalidStatus) as caught:
        ScreenGridClient(server, **query)  # type: ignore[arg-type]
    return caught.value.response.status_code


def test_each_selected_screen_is_shown_as_it_changes(
    server: Server, client: httpx.Client, desktop_ids: list[str]
) -> None:
    for sandbox, colour in zip(desktop_ids, (RED, GREEN, BLUE), strict=True):
        paint(client, sandbox, colour)
    with ScreenGridClient(server, sandboxes=",".join(desktop_ids), width=160, fps=5) as grid:
        for sandbox, colour in zip(desktop_ids, (RED, GREEN, BLUE), strict=True):
            head = grid.wait_for_colour(sandbox, colour)
            assert (head["width"], head["height"]) == (160, 100)
        grid.pictures.clear()
        paint(client, desktop_ids[1], RED)
        grid.wait_for_colour(desktop_ids[1], RED)
        assert [head["sandbox"] for head, _ in grid.pictures if head["sandbox"] != desktop_ids[1]] == []


def test_new_and_ended_screens_are_reported(server: Server, client: httpx.Client, desktop_ids: list[str]) -> None:
    code = client.post("/v1/sandboxes", json={}).json()["id"]
    with ScreenGridClient(server, sandboxes="all", fps=5) as grid:
        for handle in desktop_ids:
            grid.picture(handle)
        with sandbox_of(client, "linux") as late:
            grid.picture(late.id)
        assert grid.wait_for_message("gone", sandbox=late.id)["reason"]
        assert code not in {message.get("sandbox") for message in grid.messages}
    client.delete(f"/v1/sandboxes/{code}")


def test_unavailable_screens_are_reported_with_a_reason(
    server: Server, client: httpx.Client, desktop_ids: list[str]
) -> None:
    code = client.post("/v1/sandboxes", json={}).json()["id"]
    with ScreenGridClient(server, sandboxes=f"{code},sb-0123456789abcdef,{desktop_ids[0]}") as grid:
        assert "has no screen" in grid.wait_for_message("gone", sandbox=code)["reason"]
        grid.wait_for_message("gone", sandbox="sb-0123456789abcdef")
        grid.picture(desktop_ids[0])
    client.delete(f"/v1/sandboxes/{code}")


def test_client_changes_its_selection(server: Server, client: httpx.Client, desktop_ids: list[str]) -> None:
    with ScreenGridClient(server, sandboxes=desktop_ids[0], fps=5) as grid:
        grid.picture(desktop_ids[0])
        grid.send_json(type="watch", sandboxes=[desktop_ids[1]])
        grid.picture(desktop_ids[1])
        for nonsense in ('{"type": "watch"}', '{"type": "watch", "sandboxes": 7}', '{"type": "dance"}', "[]", "{"):
            grid.socket.send(nonsense)
            assert grid.wait_for_message("error")["code"] == "INVALID_FRAME"
        grid.send_json(type="ping")
        grid.wait_for_message("pong")


def test_restarted_display_is_shown_again(server: Server, client: httpx.Client, desktop_ids: list[str]) -> None:
    with ScreenGridClient(server, sandboxes=desktop_ids[2], fps=5) as grid:
        grid.picture(desktop_ids[2])
        run_in_sandbox(client, desktop_ids[2], "pkill -9 Xvnc")
        grid.pictures.clear()
        grid.picture(desktop_ids[2])
        paint(client, desktop_ids[2], GREEN)
        grid.wait_for_colour(desktop_ids[2], GREEN)


def test_invalid_screen_grid_requests_are_refused(server: Server, client: httpx.Client, desktop_ids: list[str]) -> None:
    assert refused(server, sandboxes="No/Way") == 400
    assert refused(server, sandboxes=",".join(["sb-0"] * 101)) == 400
    assert refused(server, width=1_000_000) == 400
    assert refused(server, fps="nan") == 400
    assert refused(server, key="") == 401
    stranger = client.post("/v1/keys", json={"name": "stranger", "tenant": "other"}).json()["secret"]
    with ScreenGridClient(server, key=stranger, sandboxes=desktop_ids[0]) as grid:
        grid.wait_for_message("gone", sandbox=desktop_ids[0])


def test_viewers_share_one_reader(tmp_path: Path) -> None:
    """Within one process, to count the readers."""

    async def watch() -> None:
        async with build_server(Config(data=tmp_path / "data")) as paddock:
            sandbox = await paddock.fleet.create("default", SandboxRequest(kind="linux"))
            screens = paddock.live.screens
            try:
                one, two = (screens.watch_screen("default", sandbox.id, width=300, rate=5) for _ in range(2))
                first = await asyncio.wait_for(anext(one), TIMEOUT_SECONDS)
                again = await asyncio.wait_for(anext(two), TIMEOUT_SECONDS)
                assert len(screens._readers) == 1
                assert first.width == again.width == 320
                await one.aclose()
                assert len(screens._readers) == 1
                await two.aclose()
                assert not screens._readers
            finally:
                await paddock.fleet.delete("default", sandbox.id)

    share_screen_images(tmp_path / "data", "desktop")
    asyncio.run(watch())
