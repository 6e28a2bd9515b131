"""Sandboxes with a browser, the pages they look at, and their tools called as a host calls them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.sandbox.daemon.client import DaemonClient
from tests.contract.backends.support import RunningSandbox, eventually
from tests.support.screen_images import screen_sandbox

PAGES = Path(__file__).parents[1] / "pages"
PORT = 8000
URL = f"http://127.0.0.1:{PORT}"


@dataclass(frozen=True)
class ToolAnswer:
    """Result of a tool call."""

    document: dict[str, Any]

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for part in self.document["content"] if part["type"] == "text")

    @property
    def failed(self) -> bool:
        return bool(self.document.get("isError"))

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("structuredContent") or {}
        return found

    @property
    def images(self) -> list[dict[str, Any]]:
        return [part for part in self.document["content"] if part["type"] == "image"]

    @property
    def files(self) -> list[str]:
        found: list[str] = self.document.get("_meta", {}).get("paddock", {}).get("files", [])
        return found


@dataclass(frozen=True)
class BrowserSandbox:
    """A sandbox with tools, called one at a time."""

    sandbox: RunningSandbox

    def call(self, name: str, seconds: float = 60.0, /, **arguments: Any) -> ToolAnswer:
        async def talk() -> dict[str, Any]:
            async with DaemonClient(self.sandbox.backend.daemon_address(self.sandbox.record)) as inside:
                return dict(await inside.call_tool(name, arguments, seconds))

        return ToolAnswer(asyncio.run(talk()))

    def do(self, name: str, /, **arguments: Any) -> ToolAnswer:
        """Call a tool that must succeed."""
        answer = self.call(name, **arguments)
        assert not answer.failed, answer.text
        return answer

    def fails(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that must not, and return what it says."""
        answer = self.call(name, **arguments)
        assert answer.failed, answer.text
        return answer.text

    def tools(self) -> dict[str, dict[str, Any]]:
        async def talk() -> list[dict[str, Any]]:
            async with DaemonClient(self.sandbox.backend.daemon_address(self.sandbox.record)) as inside:
                return [dict(tool) for tool in await inside.tools()]

        return {tool["name"]: tool for tool in asyncio.run(talk())}


@contextmanager
def desk(image: str, **changes: Any) -> Iterator[BrowserSandbox]:
    """A sandbox of an image with a browser, in which the pages are served at `URL`."""
    with (
        tempfile.TemporaryDirectory(prefix="browsing-") as directory,
        screen_sandbox(Path(directory), image, **changes) as sandbox,
    ):
        for page in PAGES.iterdir():
            if page.is_file():
                sandbox.write(f"/tmp/pages/{page.name}", page.read_bytes())
        sandbox.start(f"python3 /tmp/pages/serve.py {PORT}")
        eventually(lambda: sandbox.run(f"curl -sf -o /dev/null {URL}/form.html").exit_code == 0)
        yield BrowserSandbox(sandbox)
