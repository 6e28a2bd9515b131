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
def silence() -> Iterator[str]:
    """A mirror that accepts every request and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/debian"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[ImageBuildProgress]:
    monkeypatch.setattr(image_builds, "PROGRESS_INTERVAL", 0.02)
    return []


async def have(images: ImageStore, name: str, told: list[ImageBuildProgress]) -> None:
    async def tell(now: ImageBuildProgress) -> None:
        told.append(now)

    await ensure_image_built(images, name, tell)


async def test_what_is_there_is_not_built(tmp_path: Path, told: list[ImageBuildProgress]) -> None:
    images = ImageStore(tmp_path / "images")
    await images.build_async("host")
    await have(images, "host", told)
    assert told == []


async def test_what_has_no_recipe_is_not_there(tmp_path: Path, told: list[ImageBuildProgress]) -> None:
    with pytest.raises(ImageNotFound):
        await have(ImageStore(tmp_path / "images"), "nothing", told)
    assert told == []


async def test_why_a_build_failed_is_raised(tmp_path: Path, told: list[ImageBuildProgress]) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "orphan.yaml").write_text("description: Stands on nothing.\nbase: no-such-image\n")
    with pytest.raises(ConfigError, match="no-such-image"):
        await have(ImageStore(tmp_path / "images", [recipes]), "orphan", told)
    assert "how far orphan is" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.parametrize("ends", ["the session", "the server"])
def test_a_chat_tells_what_it_waits_for(tmp_path: Path, silence: str, ends: str) -> None:
    settings = {
        "llm": scripted(tmp_path, one=RUN),
        "sandboxes": {"min_free_disk": 0},
        "images": {"mirror": silence},
    }
    with run_server(tmp_path, settings) as server, server.client() as client:
        chat = Chat.begin(client, model="one", kinds=["code"], policy={"allow_all": ["*"]})
        chat.say("Run it.")
        waits = chat.until(lambda event: event["type"] == "session.sandbox" and bool(event["data"].get("building")))
        assert waits["data"]["state"] == "starting" and waits["data"]["building"]["image"] == "code"
        # A build without waiters is cancelled at once.
        began = time.monotonic()
        if ends == "the session":
            assert client.delete(chat.path).status_code == 204
        else:
            server.stop()
        assert time.monotonic() - began < 10
