"""Sandboxes with a browser, the pages served in them, and calls of their tools."""

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
from tests.support.screen_images import run_screen_sandbox

PAGES_DIRECTORY = Path(__file__).parents[1] / "pages"
PAGES_PORT = 8000
PAGES_URL = f"http://127.0.0.1:{PAGES_PORT}"


@dataclass(frozen=True)
class ToolCallResult:
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

    def call(self, name: str, seconds: float = 60.0, /, **arguments: Any) -> ToolCallResult:
        async def call_daemon() -> dict[str, Any]:
            async with DaemonClient(self.sandbox.backend.daemon_address(self.sandbox.record)) as inside:
                return dict(await inside.call_tool(name, arguments, seconds))

        return ToolCallResult(asyncio.run(call_daemon()))

    def do(self, name: str, /, **arguments: Any) -> ToolCallResult:
        """Call a tool that must succeed."""
        result = self.call(name, **arguments)
        assert not result.failed, result.text
        return result

    def fails(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that must fail, and return its error text."""
        result = self.call(name, **arguments)
        assert result.failed, result.text
        return result.text

    def tools(self) -> dict[str, dict[str, Any]]:
        async def list_tools() -> list[dict[str, Any]]:
            async with DaemonClient(self.sandbox.backend.daemon_address(self.sandbox.record)) as inside:
                return [dict(tool) for tool in await inside.tools()]

        return {tool["name"]: tool for tool in asyncio.run(list_tools())}


@contextmanager
def run_browser_sandbox(image: str, **changes: Any) -> Iterator[BrowserSandbox]:
    """Run a sandbox of an image with a browser and serve the test pages in it at `PAGES_URL`."""
    with (
        tempfile.TemporaryDirectory(prefix="browsing-") as directory,
        run_screen_sandbox(Path(directory), image, **changes) as sandbox,
    ):
        for page in PAGES_DIRECTORY.iterdir():
            if page.is_file():
                sandbox.write(f"/tmp/pages/{page.name}", page.read_bytes())
        sandbox.start(f"python3 /tmp/pages/page_server.py {PAGES_PORT}")
        eventually(lambda: sandbox.run(f"curl -sf -o /dev/null {PAGES_URL}/form.html").exit_code == 0)
        yield BrowserSandbox(sandbox)
