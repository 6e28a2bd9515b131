"""Boxes with a browser, the pages they look at, and their tools called as a host calls them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.sandbox.client import Inside
from tests.contract.backends.support import Pen, eventually
from tests.screens import screen_box

PAGES = Path(__file__).parent / "pages"
PORT = 8000
URL = f"http://127.0.0.1:{PORT}"


@dataclass(frozen=True)
class Answer:
    """What a tool said."""

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
class Desk:
    """A box whose tools are called one by one."""

    box: Pen

    def call(self, name: str, seconds: float = 60.0, /, **arguments: Any) -> Answer:
        async def talk() -> dict[str, Any]:
            async with Inside(self.box.backend.address(self.box.record)) as inside:
                return dict(await inside.call_tool(name, arguments, seconds))

        return Answer(asyncio.run(talk()))

    def do(self, name: str, /, **arguments: Any) -> Answer:
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
            async with Inside(self.box.backend.address(self.box.record)) as inside:
                return [dict(tool) for tool in await inside.tools()]

        return {tool["name"]: tool for tool in asyncio.run(talk())}


@contextmanager
def desk(image: str, **changes: Any) -> Iterator[Desk]:
    """A box of an image with a browser, in which the pages are served at `URL`."""
    with (
        tempfile.TemporaryDirectory(prefix="browsing-") as directory,
        screen_box(Path(directory), image, **changes) as box,
    ):
        for page in PAGES.iterdir():
            if page.is_file():
                box.write(f"/tmp/pages/{page.name}", page.read_bytes())
        box.start(f"python3 /tmp/pages/serve.py {PORT}")
        eventually(lambda: box.run(f"curl -sf -o /dev/null {URL}/form.html").exit_code == 0)
        yield Desk(box)
