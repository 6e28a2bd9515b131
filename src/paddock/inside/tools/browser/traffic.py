"""What pages write to their console, and what they fetch."""

from __future__ import annotations

from collections import OrderedDict

from .journal import KEPT, Ring, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Console:
    """The latest messages and uncaught errors of all tabs."""

    def __init__(self) -> None:
        self.ring = Ring()

    def listen(self, context: Any) -> None:
        context.on("console", self._said)
        context.on("weberror", self._failed)

    def _said(self, message: Any) -> None:
        where = message.location or {}
        source = f"{where.get('url', '')}:{where.get('lineNumber', '')}" if where.get("url") else ""
        self.ring.add(level=message.type, text=cut(message.text), source=cut(source, 300))

    def _failed(self, error: Any) -> None:
        self.ring.add(level="exception", text=cut(error.error), source="")


class Network:
    """The latest requests of all tabs, and how they went."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def listen(self, context: Any) -> None:
        context.on("request", self._asked)
        context.on("response", self._answered)
        context.on("requestfailed", self._failed)

    def listed(self) -> list[dict[str, Any]]:
        return list(self._entries.values())

    def clear(self) -> None:
        self._entries.clear()

    def _asked(self, request: Any) -> None:
        entry = {"method": cut(request.method, 20), "url": cut(request.url, 1000), "type": request.resource_type}
        self._entries[request] = {**entry, "status": None, "error": ""}
        if len(self._entries) > KEPT:
            self._entries.popitem(last=False)

    def _answered(self, response: Any) -> None:
        entry = self._entries.get(response.request)
        if entry is not None:
            entry["status"] = response.status

    def _failed(self, request: Any) -> None:
        entry = self._entries.get(request)
        if entry is not None:
            entry["error"] = cut(request.failure or "failed", 200)
