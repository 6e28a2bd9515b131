"""Images built for a session, with progress events."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.agents.tools import image_builds
from paddock.agents.tools.image_builds import ensure_image_built
from paddock.errors import ConfigError, ImageNotFound
from paddock.model.session_events import ImageBuildProgress
from paddock.sandbox.images.image_store import ImageStore
from tests.integration.agents.chat_client import Chat, scripted
from tests.support.server import run_server

pytestmark = pytest.mark.anyio
RUN = {"turns": [{"call": {"tool": "code_run_shell_command", "arguments": {"command": "echo hi"}}}, {"say": "Done."}]}


@pytest.fixture
def silent_mirror() -> Iterator[str]:
    """A mirror that accepts every request and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/debian"


@pytest.fixture
def progress_events(monkeypatch: pytest.MonkeyPatch) -> list[ImageBuildProgress]:
    monkeypatch.setattr(image_builds, "PROGRESS_INTERVAL", 0.02)
    return []


async def ensure_built(images: ImageStore, name: str, progress_events: list[ImageBuildProgress]) -> None:
    async def record(progress: ImageBuildProgress) -> None:
        progress_events.append(progress)

    await ensure_image_built(images, name, record)


async def test_existing_image_is_not_built(tmp_path: Path, progress_events: list[ImageBuildProgress]) -> None:
    images = ImageStore(tmp_path / "images")
    await images.build_async("host")
    await ensure_built(images, "host", progress_events)
    assert progress_events == []


async def test_image_without_recipe_is_not_found(tmp_path: Path, progress_events: list[ImageBuildProgress]) -> None:
    with pytest.raises(ImageNotFound):
        await ensure_built(ImageStore(tmp_path / "images"), "nothing", progress_events)
    assert progress_events == []


async def test_build_failure_is_raised(tmp_path: Path, progress_events: list[ImageBuildProgress]) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "orphan.yaml").write_text("description: Stands on nothing.\nbase: no-such-image\n")
    with pytest.raises(ConfigError, match="no-such-image"):
        await ensure_built(ImageStore(tmp_path / "images", [recipes]), "orphan", progress_events)
    assert "how far orphan is" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.parametrize("stopped", ["the session", "the server"])
def test_chat_emits_build_progress(tmp_path: Path, silent_mirror: str, stopped: str) -> None:
    settings = {
        "llm": scripted(tmp_path, one=RUN),
        "sandboxes": {"min_free_disk": 0},
        "images": {"mirror": silent_mirror},
    }
    with run_server(tmp_path, settings) as server, server.client() as client:
        chat = Chat.create(client, model="one", kinds=["code"], policy={"allow_all": ["*"]})
        chat.send_message("Run it.")
        event = chat.wait_for_event(
            lambda event: (
                event["type"] == "session.sandbox" and bool((event["data"].get("building") or {}).get("step_number"))
            )
        )
        building = event["data"]["building"]
        assert building["step_number"] == 1 < building["step_count"] and building["fraction"] < 1
        assert event["data"]["state"] == "starting" and event["data"]["building"]["image"] == "code"
        # A build without waiters is cancelled at once.
        start_time = time.monotonic()
        if stopped == "the session":
            assert client.delete(chat.path).status_code == 204
        else:
            server.stop()
        assert time.monotonic() - start_time < 10
