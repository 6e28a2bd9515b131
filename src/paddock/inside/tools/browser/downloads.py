"""What the browser saves: where it lands, how far it is, and when it is too much."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict

from .journal import Ring, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 1024 * 1024 * 1024
"""Bytes that one download may have, unless PADDOCK_DOWNLOAD_LIMIT says otherwise."""
AT_ONCE = 8
KEPT = 100


class Downloads:
    """The latest downloads of a browser. One past the limit is cancelled, and leaves nothing behind."""

    def __init__(self, directory: str, journal: Ring) -> None:
        self.directory = directory
        self.limit = _limit()
        self._journal = journal
        self._all: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._session: Any = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self.changed = asyncio.Event()

    async def open(self, wire: Any) -> None:
        """Have chromium save files here, and tell of it on a wire that speaks its protocol."""
        os.makedirs(self.directory, exist_ok=True)
        self._session = wire
        self._session.on("Browser.downloadWillBegin", self._begun)
        self._session.on("Browser.downloadProgress", self._progress)
        await self._session.send(
            "Browser.setDownloadBehavior",
            {"behavior": "allow", "downloadPath": self.directory, "eventsEnabled": True},
        )

    def listed(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in one.items() if name not in ("guid", "number")} for one in self._all.values()
        ]

    def running(self, since: int = 0) -> list[dict[str, Any]]:
        """What is being downloaded now, and began after an entry of the journal."""
        return [one for one in self._all.values() if one["state"] == "running" and one["number"] > since]

    async def wait(self, seconds: float, since: int = 0) -> bool:
        """Wait until nothing of that is being downloaded any more; False when that takes longer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.running(since):
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), max(0.0, deadline - loop.time()))
            except asyncio.TimeoutError:
                return False
        return True

    def _begun(self, event: dict[str, Any]) -> None:
        name = cut(os.path.basename(str(event.get("suggestedFilename", ""))) or "download", 200)
        one = {
            "guid": event["guid"],
            "name": name,
            "url": cut(event.get("url", ""), 500),
            "state": "running",
            "received": 0,
            "size": None,
            "path": None,
            "message": "",
            "number": self._journal.last + 1,
        }
        busy = len(self.running()) >= AT_ONCE
        self._all[one["guid"]] = one
        if len(self._all) > KEPT:
            oldest = next((guid for guid, known in self._all.items() if known["state"] != "running"), None)
            if oldest is not None:
                del self._all[oldest]
        self._journal.add(kind="download", text=f"A download has begun: {name}.")
        if busy:
            self._cancel(one, f"more than {AT_ONCE} downloads at once")

    def _progress(self, event: dict[str, Any]) -> None:
        one = self._all.get(event.get("guid", ""))
        if one is None:
            return
        received, total = int(event.get("receivedBytes") or 0), int(event.get("totalBytes") or 0)
        state = event.get("state")
        if state == "inProgress":
            one["received"], one["size"] = received, total or None
            if max(received, total) > self.limit:
                self._cancel(one, f"it is larger than the limit of {_bytes(self.limit)}")
            return
        if one["state"] == "running" and state == "completed":
            one.update(state="done", received=received, size=received, path=event.get("filePath") or self._path(one))
            text = f"The download of {one['name']} is complete: {one['path']} ({_bytes(received)})."
            self._journal.add(kind="download", text=text, path=one["path"])
        elif one["state"] == "running":
            one.update(state="failed", message="it was cancelled, or the connection broke")
            self._journal.add(kind="download", text=f"The download of {one['name']} has failed.")
        self.changed.set()

    def _cancel(self, one: dict[str, Any], why: str) -> None:
        if one["state"] != "running":
            return
        one.update(state="cancelled", message=why)
        self._journal.add(kind="download", text=f"The download of {one['name']} was cancelled: {why}.")
        self.changed.set()
        task = asyncio.ensure_future(self._stop(one["guid"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self, guid: str) -> None:
        try:
            await asyncio.wait_for(self._session.send("Browser.cancelDownload", {"guid": guid}), 5.0)
        except Exception:
            return  # The browser has ended, and the download with it.

    def _path(self, one: dict[str, Any]) -> str:
        return os.path.join(self.directory, one["name"])


def _limit() -> int:
    said = os.environ.get("PADDOCK_DOWNLOAD_LIMIT", "")
    return int(said) if said.isdigit() and int(said) > 0 else LIMIT


def _bytes(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
