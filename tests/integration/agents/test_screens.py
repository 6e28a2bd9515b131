"""Sessions with screens: screenshots, desktops and takeovers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.agents.tools.tool_names import build_tool_specs, default_tools
from paddock.fleet.kinds import LINUX
from paddock.model.sessions import FileContent, Session, SessionState
from tests.integration.agents.sandbox_harness import (
    HOST_KINDS,
    TENANT,
    SandboxHarness,
    open_sandbox_harness,
    remove_everything,
)
from tests.integration.fleet.conftest import until
from tests.support.screen_images import share_screen_images

pytestmark = pytest.mark.anyio
ADA = "viewer-ada"
PNG = b"\x89PNG"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    share_screen_images(tmp_path, "desktop")
    async with open_sandbox_harness(tmp_path, live={"input_wait": 0.1}, kinds=HOST_KINDS) as made:
        yield made
    await remove_everything(tmp_path)


@pytest.fixture
async def session(bench: SandboxHarness) -> Session:
    made = await bench.session("linux", "code", state=SessionState.RUNNING, turn=1)
    await bench.toolbox.get_sandbox(made, "linux")
    return made


def frame(payload: bytes) -> bytes:
    """A client's frame of a WebSocket."""
    return bytes((0x82, 0x80 | len(payload), 0, 0, 0, 0)) + payload


async def test_a_picture_of_the_screen_is_kept_and_shown(bench: SandboxHarness, session: Session) -> None:
    tools = await bench.toolbox.list_tools(session)
    assert [spec for spec in tools if spec.kind == "linux"] == build_tool_specs("linux", default_tools(LINUX))
    result = await bench.call(session, "linux_screenshot", format="png")
    (picture,) = [part for part in result.content if isinstance(part, FileContent)]
    assert picture.type == "image" and picture.mime == "image/png"
    assert (await bench.files.read_file(session.id, picture.file)).startswith(PNG)
    await bench.call(session, "linux_move_mouse", x=10, y=10)
    await bench.call(session, "linux_list_directory", path="/")
    sandbox = await bench.sandbox(session, "linux")
    assert await bench.told(session, "session.screen") == [
        {"kind": "linux", "sandbox_id": sandbox, "cause": "linux_screenshot"},
        {"kind": "linux", "sandbox_id": sandbox, "cause": "linux_move_mouse"},
    ]


async def test_a_screen_goes_to_a_file_of_another_sandbox(bench: SandboxHarness, session: Session) -> None:
    shot = {"from_kind": "linux", "to_kind": "code", "to_path": "/workspace/screen.png"}
    result = await bench.call(session, "screenshot_to_sandbox", **shot)
    assert not result.failed, result.text
    assert "PNG" in (await bench.call(session, "code_run_shell_command", command="head -c 4 screen.png")).text
    told = (await bench.told(session, "session.file"))[-1]
    assert told["source"] == "linux:screen" and told["path"] == "/workspace/screen.png"


async def test_the_desktop_is_stopped_and_started(bench: SandboxHarness, session: Session) -> None:
    assert not (await bench.call(session, "stop_desktop", kind="linux")).failed
    assert (await bench.call(session, "linux_screenshot")).failed
    assert not (await bench.call(session, "start_desktop", kind="linux")).failed
    assert not (await bench.call(session, "linux_screenshot")).failed
    assert [each["state"] for each in await bench.told(session, "session.desktop")] == ["stopped", "started"]
    assert "no screen" in (await bench.call(session, "start_desktop", kind="code")).text


async def test_what_a_person_did_is_told_with_a_fresh_picture(bench: SandboxHarness, session: Session) -> None:
    sandbox = await bench.sandbox(session, "linux")
    await bench.live.leases.take_input(TENANT, sandbox, ADA, "Ada")
    held = await bench.call(session, "linux_click_mouse", x=10, y=10)
    assert held.failed and "Nothing was done: Ada has control" in held.text
    waiting = asyncio.create_task(bench.parking.wait_for_release(session))
    near, far = socket.socketpair()
    near.setblocking(False)
    async with bench.live.desktops.open_display(TENANT, sandbox) as view:
        watching = asyncio.create_task(bench.live.desktops.serve_viewer(near, view, ADA))
        said = [b"RFB 003.008\n", b"\1", b"\1"]
        said += [struct.pack(">BBHH", 5, mask, 200, 200) for mask in (0, 1, 0)]
        said += [struct.pack(">BBxxI", 4, down, ord(each)) for each in "pw" for down in (1, 0)]
        far.sendall(b"".join(map(frame, said)))

        async def noticed() -> bool:
            return bench.live.leases.takeovers._current[sandbox].characters == 2

        await until(noticed)
        await bench.live.leases.release_input(TENANT, sandbox, ADA)
        far.close()
        async with asyncio.timeout(20):
            await watching
    async with asyncio.timeout(30):
        await waiting
    (note,) = [message for message in await bench.book.list_messages(session.id) if message.role == "note"]
    assert "1 mouse click; 2 characters typed (not shown here)" in note.text
    assert "It looks like this now:" in note.text
    (picture,) = [part for part in note.content if isinstance(part, FileContent)]
    assert picture.type == "image"
    assert (await bench.files.read_file(session.id, picture.file)).startswith(PNG)
