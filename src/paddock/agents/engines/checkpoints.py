"""Keeps LangGraph's checkpoints in the store.

They are gathered until somebody needs them on disk (`settle`), and then written all at once: LangGraph makes several
before each question to the model, and a turn is at no loss without the newest of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from paddock.store.database import Store, Work

GROWING = "messages"
"""The only channel of which most checkpoints have but what was added; one that has all of it needs no older ones."""


@dataclass
class _Queue:
    """What is to be written of a thread. Each needs what was before it, so nothing is left out."""

    works: list[Work[None]] = field(default_factory=list)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Checkpoints(BaseCheckpointSaver[int]):
    """Checkpoints of all threads; a thread is a session. Only what LangGraph can go on from is kept."""

    def __init__(self, store: Store) -> None:
        # Whatever is read back is one of the types that LangGraph knows as safe.
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._checkpoints = CheckpointStore(store)
        self._queues: dict[str, _Queue] = {}
        self._flushing: set[asyncio.Task[None]] = set()
        self._read: dict[str, tuple[str, Sequence[Place]]] = {}
        """All that was last read of a thread, as long as nothing was added to it."""

    async def settle(self, thread: str) -> None:
        """Return once everything of a thread is on disk."""
        queue = self._queues.get(thread)
        if queue is None:
            return
        # Whoever is cancelled here must not take with it what others go on from.
        task = asyncio.create_task(self._flush(thread, queue))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what is being written."""
        await asyncio.gather(*self._flushing, return_exceptions=True)

    async def _flush(self, thread: str, queue: _Queue) -> None:
        async with queue.writing:
            works, queue.works = queue.works, []
            try:
                if works:
                    await self._checkpoints.write(works)
            except BaseException:
                queue.works = works + queue.works
                raise
            if not queue.works and self._queues.get(thread) is queue:
                del self._queues[thread]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _where(config)
        await self.settle(thread)
        wanted = get_checkpoint_id(config)
        if wanted is not None:
            place = await self._checkpoints.get(thread, namespace, wanted)
        else:
            places = await self._checkpoints.all(thread, namespace)
            place = places[0] if places else None
            # LangGraph asks for the history of the newest next.
            self._read[thread] = namespace, places
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
        await self.settle(config["configurable"]["thread_id"])
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
        self._add(thread, CheckpointStore.putting(kept, whole=whole, outermost=not namespace))
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
        checkpoint_id = config["configurable"]["checkpoint_id"]
        self._add(thread, CheckpointStore.writing(thread, namespace, checkpoint_id, kept, replace=replace))

    async def adelete_thread(self, thread_id: str) -> None:
        self._queues.pop(thread_id, None)
        self._read.pop(thread_id, None)
        await self._checkpoints.forget(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was added to channels until a checkpoint, from the last one that has all of it."""
        thread, namespace = _where(config)
        await self.settle(thread)
        places = {place.checkpoint.id: place for place in await self._all(thread, namespace)}
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

    async def _all(self, thread: str, namespace: str) -> Sequence[Place]:
        known, places = self._read.pop(thread, (None, ()))
        return places if known == namespace else await self._checkpoints.all(thread, namespace)

    def _add(self, thread: str, work: Work[None]) -> None:
        self._read.pop(thread, None)
        self._queues.setdefault(thread, _Queue()).works.append(work)

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
