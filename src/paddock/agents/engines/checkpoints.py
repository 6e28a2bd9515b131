"""Keeps LangGraph's checkpoints in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as Snapshot
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from paddock.store.checkpoints import Checkpoint, CheckpointStore, CheckpointWrite, Place
from paddock.store.database import Store

GROWING = "messages"
"""The only channel of which most checkpoints have but what was added; one that has all of it needs no older ones."""


class Checkpoints(BaseCheckpointSaver[int]):
    """Checkpoints of all threads; a thread is a session. Only what LangGraph can go on from is kept."""

    def __init__(self, store: Store) -> None:
        # Whatever is read back is one of the types that LangGraph knows as safe.
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._checkpoints = CheckpointStore(store)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _where(config)
        place = await self._checkpoints.get(thread, namespace, get_checkpoint_id(config))
        return self._tuple(place) if place else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if config is None:
            return
        wanted, bound = get_checkpoint_id(config), get_checkpoint_id(before) if before else None
        given = 0
        for place in await self._checkpoints.all(
            config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns")
        ):
            if (wanted and place.checkpoint.id != wanted) or (bound and place.checkpoint.id >= bound):
                continue
            found = self._tuple(place)
            if any(found.metadata.get(key) != value for key, value in (filter or {}).items()):
                continue
            if limit is not None and given >= limit:
                return
            given += 1
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Snapshot,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, namespace = _where(config)
        kind, body = self.serde.dumps_typed(checkpoint)
        _, details = self.serde.dumps_typed(get_serializable_checkpoint_metadata(config, metadata))
        kept = Checkpoint(thread, namespace, checkpoint["id"], get_checkpoint_id(config), kind, body, details)
        whole = GROWING in checkpoint["channel_values"]
        await self._checkpoints.put(kept, whole=whole, outermost=not namespace)
        return _config(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, namespace = _where(config)
        kept = [
            CheckpointWrite(
                task_id, WRITES_IDX_MAP.get(channel, place), channel, *self.serde.dumps_typed(value), task_path
            )
            for place, (channel, value) in enumerate(writes)
        ]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        await self._checkpoints.put_writes(
            thread, namespace, config["configurable"]["checkpoint_id"], kept, replace=replace
        )

    async def adelete_thread(self, thread_id: str) -> None:
        await self._checkpoints.forget(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was added to channels until a checkpoint, from the last one that has all of it."""
        thread, namespace = _where(config)
        places = {place.checkpoint.id: place for place in await self._checkpoints.all(thread, namespace)}
        head = places.get(get_checkpoint_id(config) or max(places, default=""))
        added: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        place = places.get(head.checkpoint.parent or "") if head else None
        while place is not None and len(seeds) < len(added):
            values = self._body(place)["channel_values"]
            for channel in added.keys() - seeds.keys():
                added[channel].append(self._pending(place, channel))
                if channel in values:
                    seeds[channel] = values[channel]
            place = places.get(place.checkpoint.parent or "")
        return {channel: _history(added[channel], channel, seeds) for channel in channels}

    def _body(self, place: Place) -> Snapshot:
        body: Snapshot = self.serde.loads_typed((place.checkpoint.type, place.checkpoint.body))
        return body

    def _pending(self, place: Place, channel: str | None = None) -> list[PendingWrite]:
        return [
            (write.task, write.channel, self.serde.loads_typed((write.type, write.body)))
            for write in place.writes
            if channel is None or write.channel == channel
        ]

    def _tuple(self, place: Place) -> CheckpointTuple:
        kept = place.checkpoint
        return CheckpointTuple(
            config=_config(kept.thread, kept.namespace, kept.id),
            checkpoint=self._body(place),
            metadata=self.serde.loads_typed((kept.type, kept.details)),
            parent_config=_config(kept.thread, kept.namespace, kept.parent) if kept.parent else None,
            pending_writes=self._pending(place),
        )


def _history(added: Sequence[list[PendingWrite]], channel: str, seeds: Mapping[str, Any]) -> DeltaChannelHistory:
    history = DeltaChannelHistory(writes=[write for writes in reversed(added) for write in writes])
    if channel in seeds:
        history["seed"] = seeds[channel]
    return history


def _where(config: RunnableConfig) -> tuple[str, str]:
    return config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns", "")


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
