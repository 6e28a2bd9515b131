"""Tracks the browser's downloads: path, progress and size limit."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict

from .event_ring_buffer import EventRingBuffer, truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOWNLOAD_LIMIT = 1024 * 1024 * 1024
"""Maximum bytes per download, unless PADDOCK_DOWNLOAD_LIMIT sets another limit."""
MAX_PARALLEL = 8
MAX_REMEMBERED = 100


class BrowserDownloads:
    """The latest downloads of a browser; one beyond the limit is cancelled and its file removed."""

    def __init__(self, directory: str, events: EventRingBuffer) -> None:
        self.directory = directory
        self.limit = _configured_limit()
        self._events = events
        self._all: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._session: Any = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self.changed = asyncio.Event()

    async def listen(self, cdp_session: Any) -> None:
        """Make chromium save downloads to the directory and report them on a CDP session."""
        os.makedirs(self.directory, exist_ok=True)
        self._session = cdp_session
        self._session.on("Browser.downloadWillBegin", self._on_start)
        self._session.on("Browser.downloadProgress", self._on_progress)
        await self._session.send(
            "Browser.setDownloadBehavior",
            {"behavior": "allow", "downloadPath": self.directory, "eventsEnabled": True},
        )

    def list_downloads(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in one.items() if name not in ("guid", "number")} for one in self._all.values()
        ]

    def running_since(self, since: int = 0) -> list[dict[str, Any]]:
        """Return running downloads that started after event number `since`."""
        return [one for one in self._all.values() if one["state"] == "running" and one["number"] > since]

    async def wait_until_finished(self, seconds: float, since: int = 0) -> bool:
        """Wait until these downloads have finished; False on timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.running_since(since):
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), max(0.0, deadline - loop.time()))
            except asyncio.TimeoutError:
                return False
        return True

    def _on_start(self, event: dict[str, Any]) -> None:
        name = truncate_with_note(os.path.basename(str(event.get("suggestedFilename", ""))) or "download", 200)
        one = {
            "guid": event["guid"],
            "name": name,
            "url": truncate_with_note(event.get("url", ""), 500),
            "state": "running",
            "received": 0,
            "size": None,
            "path": None,
            "message": "",
            "number": self._events.last_number + 1,
        }
        busy = len(self.running_since()) >= MAX_PARALLEL
        self._all[one["guid"]] = one
        if len(self._all) > MAX_REMEMBERED:
            oldest = next((guid for guid, known in self._all.items() if known["state"] != "running"), None)
            if oldest is not None:
                del self._all[oldest]
        self._events.add(kind="download", text=f"A download has started: {name}.")
        if busy:
            self._cancel_download(one, f"more than {MAX_PARALLEL} downloads at once")

    def _on_progress(self, event: dict[str, Any]) -> None:
        one = self._all.get(event.get("guid", ""))
        if one is None:
            return
        received, total = int(event.get("receivedBytes") or 0), int(event.get("totalBytes") or 0)
        state = event.get("state")
        if state == "inProgress":
            one["received"], one["size"] = received, total or None
            if max(received, total) > self.limit:
                self._cancel_download(one, f"it is larger than the limit of {_format_bytes(self.limit)}")
            return
        if one["state"] == "running" and state == "completed":
            one.update(
                state="done", received=received, size=received, path=event.get("filePath") or self._expected_path(one)
            )
            text = f"The download of {one['name']} is complete: {one['path']} ({_format_bytes(received)})."
            self._events.add(kind="download", text=text, path=one["path"])
        elif one["state"] == "running":
            one.update(state="failed", message="it was cancelled, or the connection was lost")
            self._events.add(kind="download", text=f"The download of {one['name']} has failed.")
        self.changed.set()

    def _cancel_download(self, one: dict[str, Any], reason: str) -> None:
        if one["state"] != "running":
            return
        one.update(state="cancelled", message=reason)
        self._events.add(kind="download", text=f"The download of {one['name']} was cancelled: {reason}.")
        self.changed.set()
        task = asyncio.ensure_future(self._cancel_in_chromium(one["guid"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel_in_chromium(self, guid: str) -> None:
        try:
            await asyncio.wait_for(self._session.send("Browser.cancelDownload", {"guid": guid}), 5.0)
        except Exception:
            return  # The browser has ended, so the download has too.

    def _expected_path(self, one: dict[str, Any]) -> str:
        return os.path.join(self.directory, one["name"])


def _configured_limit() -> int:
    configured = os.environ.get("PADDOCK_DOWNLOAD_LIMIT", "")
    return int(configured) if configured.isdigit() and int(configured) > 0 else DOWNLOAD_LIMIT


def _format_bytes(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
