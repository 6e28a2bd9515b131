"""Logs of console messages and network requests of all pages."""

from __future__ import annotations

from collections import OrderedDict

from .event_ring_buffer import MAX_ENTRIES, EventRingBuffer, truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ConsoleMessageLog:
    """The latest messages and uncaught errors of all tabs."""

    def __init__(self) -> None:
        self.ring = EventRingBuffer()

    def listen(self, context: Any) -> None:
        context.on("console", self._on_console)
        context.on("weberror", self._on_failure)

    def _on_console(self, message: Any) -> None:
        where = message.location or {}
        source = f"{where.get('url', '')}:{where.get('lineNumber', '')}" if where.get("url") else ""
        self.ring.add(level=message.type, text=truncate_with_note(message.text), source=truncate_with_note(source, 300))

    def _on_failure(self, error: Any) -> None:
        self.ring.add(level="exception", text=truncate_with_note(error.error), source="")


class NetworkRequestLog:
    """The latest requests of all tabs, with status or error."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def listen(self, context: Any) -> None:
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("requestfailed", self._on_failure)

    def list_requests(self) -> list[dict[str, Any]]:
        return list(self._entries.values())

    def clear(self) -> None:
        self._entries.clear()

    def _on_request(self, request: Any) -> None:
        entry = {
            "method": truncate_with_note(request.method, 20),
            "url": truncate_with_note(request.url, 1000),
            "type": request.resource_type,
        }
        self._entries[request] = {**entry, "status": None, "error": ""}
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def _on_response(self, response: Any) -> None:
        entry = self._entries.get(response.request)
        if entry is not None:
            entry["status"] = response.status

    def _on_failure(self, request: Any) -> None:
        entry = self._entries.get(request)
        if entry is not None:
            entry["error"] = truncate_with_note(request.failure or "failed", 200)
