"""Connections of a sandbox: the recorded and the open ones together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

from paddock.errors import InvalidInput
from paddock.model.network import ConnectionRecord
from paddock.network.sandbox_network_control import SandboxNetworkControl
from paddock.store.connection_store import ConnectionPosition, ConnectionStore, TargetTotals


class ListedConnection(NamedTuple):
    record: ConnectionRecord
    open: bool


class ConnectionPage(NamedTuple):
    """Connections, the one that started last first."""

    items: Sequence[ListedConnection]
    next: str | None
    """Id after which the next page begins; `None` on the last page."""


class ConnectionHistory:
    """Reads connections. `flush` writes connections that ended just now."""

    def __init__(
        self,
        store: ConnectionStore,
        networks: SandboxNetworkControl,
        flush: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._networks = networks
        self._flush = flush

    async def list(
        self,
        sandbox_id: str,
        *,
        allowed: bool | None = None,
        is_open: bool | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> ConnectionPage:
        """Return one page. Raises `InvalidInput` for an unknown `before`."""
        found = {record.id: ListedConnection(record, True) for record in self._networks.open_connections(sandbox_id)}
        if self._flush is not None:
            await self._flush()
        position = None if before is None else await self._position(sandbox_id, before, found)
        found = {
            each.record.id: each
            for each in found.values()
            if allowed in (None, each.record.allowed)
            and is_open is not False
            and (position is None or _position(each.record) < position)
        }
        if is_open is not True:
            ended = await self._store.list_of_sandbox(sandbox_id, allowed=allowed, before=position, limit=limit + 1)
            found |= {record.id: ListedConnection(record, False) for record in ended}
        ordered = sorted(found.values(), key=lambda each: _position(each.record), reverse=True)
        items = ordered[:limit]
        return ConnectionPage(items, items[-1].record.id if len(ordered) > limit else None)

    async def ended_connections(self, sandbox_id: str) -> AsyncIterator[ConnectionRecord]:
        """Yield the recorded connections of a sandbox in the order of their start."""
        if self._flush is not None:
            await self._flush()
        position = None
        while records := await self._store.list_in_order(sandbox_id, after=position):
            for record in records:
                yield record
            position = _position(records[-1])

    async def totals(self, sandbox_id: str) -> Sequence[TargetTotals]:
        """Return sums by target, the most used targets first."""
        opened = self._networks.open_connections(sandbox_id)
        if self._flush is not None:
            await self._flush()
        sums = {(each.host, each.port): each for each in await self._store.totals(sandbox_id)}
        for record in opened:
            key = (record.host, record.port)
            one = sums.get(key, TargetTotals(*key, 0, 0, 0, 0))
            sums[key] = one._replace(
                connections=one.connections + 1, sent=one.sent + record.sent, received=one.received + record.received
            )
        return sorted(sums.values(), key=lambda each: (-each.connections, each.host, each.port))

    async def _position(
        self, sandbox_id: str, connection_id: str, opened: dict[str, ListedConnection]
    ) -> ConnectionPosition:
        if connection_id in opened:
            return _position(opened[connection_id].record)
        record = await self._store.find(sandbox_id, connection_id)
        if record is None:
            raise InvalidInput(f"before: sandbox {sandbox_id} has no connection {connection_id[:80]!r}")
        return _position(record)


def _position(record: ConnectionRecord) -> ConnectionPosition:
    return ConnectionPosition(record.started_at, record.id)
