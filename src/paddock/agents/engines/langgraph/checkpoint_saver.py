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

from paddock.store.chat_sessions.langgraph_checkpoints import (
    CheckpointWithWrites,
    CheckpointWrite,
    LangGraphCheckpoint,
    LangGraphCheckpointStore,
)
from paddock.store.database import Store, Work

DELTA_CHANNEL = "messages"
"""The only channel stored as deltas; a checkpoint with its full value needs no older ones."""


@dataclass
class _WriteQueue:
    """Pending writes of a thread, in order; later writes depend on earlier ones."""

    works: list[Work[None]] = field(default_factory=list)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class StoreCheckpointSaver(BaseCheckpointSaver[int]):
    """Checkpoints of all threads (sessions). Only checkpoints that LangGraph can resume from are kept."""

    def __init__(self, store: Store) -> None:
        # Only types that LangGraph considers safe are deserialized.
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._checkpoints = LangGraphCheckpointStore(store)
        self._queues: dict[str, _WriteQueue] = {}
        self._flush_tasks: set[asyncio.Task[None]] = set()
        self._recent_reads: dict[str, tuple[str, Sequence[CheckpointWithWrites]]] = {}
        """Checkpoints of a thread that were read last, valid until the next write."""

    async def flush(self, thread: str) -> None:
        """Write all pending checkpoints of a thread."""
        queue = self._queues.get(thread)
        if queue is None:
            return
        # Cancellation of the caller must not cancel a write that others rely on.
        task = asyncio.create_task(self._write_queue(thread, queue))
        self._flush_tasks.add(task)
        task.add_done_callback(self._flush_tasks.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for running writes."""
        await asyncio.gather(*self._flush_tasks, return_exceptions=True)

    async def _write_queue(self, thread: str, queue: _WriteQueue) -> None:
        async with queue.writing:
            works, queue.works = queue.works, []
            try:
                if works:
                    await self._checkpoints.run_works(works)
            except BaseException:
                queue.works = works + queue.works
                raise
            if not queue.works and self._queues.get(thread) is queue:
                del self._queues[thread]

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _thread_and_namespace(config)
        await self.flush(thread)
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id is not None:
            stored = await self._checkpoints.get_checkpoint(thread, namespace, checkpoint_id)
        else:
            checkpoints = await self._checkpoints.list_checkpoints(thread, namespace)
            stored = checkpoints[0] if checkpoints else None
            # LangGraph reads the history of the newest checkpoint next.
            self._recent_reads[thread] = namespace, checkpoints
        return self._checkpoint_tuple(stored) if stored else None

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
        checkpoint_id, before_id = get_checkpoint_id(config), get_checkpoint_id(before) if before else None
        yielded = 0
        await self.flush(config["configurable"]["thread_id"])
        for stored in await self._checkpoints.list_checkpoints(
            config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns")
        ):
            if (checkpoint_id and stored.checkpoint.id != checkpoint_id) or (
                before_id and stored.checkpoint.id >= before_id
            ):
                continue
            checkpoint_tuple = self._checkpoint_tuple(stored)
            if any(checkpoint_tuple.metadata.get(key) != value for key, value in (filter or {}).items()):
                continue
            if limit is not None and yielded >= limit:
                return
            yielded += 1
            yield checkpoint_tuple

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Snapshot,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, namespace = _thread_and_namespace(config)
        kind, body = self.serde.dumps_typed(checkpoint)
        _, details = self.serde.dumps_typed(get_serializable_checkpoint_metadata(config, metadata))
        record = LangGraphCheckpoint(
            thread, namespace, checkpoint["id"], get_checkpoint_id(config), kind, body, details
        )
        is_complete = DELTA_CHANNEL in checkpoint["channel_values"]
        self._enqueue(
            thread, LangGraphCheckpointStore.put_checkpoint_work(record, is_complete=is_complete, is_root=not namespace)
        )
        return _checkpoint_config(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, namespace = _thread_and_namespace(config)
        records = [
            CheckpointWrite(
                task_id, WRITES_IDX_MAP.get(channel, index), channel, *self.serde.dumps_typed(value), task_path
            )
            for index, (channel, value) in enumerate(writes)
        ]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        self._enqueue(
            thread,
            LangGraphCheckpointStore.store_writes_work(thread, namespace, checkpoint_id, records, replace=replace),
        )

    async def adelete_thread(self, thread_id: str) -> None:
        self._queues.pop(thread_id, None)
        self._recent_reads.pop(thread_id, None)
        await self._checkpoints.delete_thread(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the deltas of channels up to a checkpoint, since the last full value."""
        thread, namespace = _thread_and_namespace(config)
        await self.flush(thread)
        checkpoints = {stored.checkpoint.id: stored for stored in await self._read_all(thread, namespace)}
        newest = checkpoints.get(get_checkpoint_id(config) or max(checkpoints, default=""))
        deltas: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        stored = checkpoints.get(newest.checkpoint.parent or "") if newest else None
        while stored is not None and len(seeds) < len(deltas):
            values = self._load_checkpoint(stored)["channel_values"]
            for channel in deltas.keys() - seeds.keys():
                deltas[channel].append(self._pending_writes(stored, channel))
                if channel in values:
                    seeds[channel] = values[channel]
            stored = checkpoints.get(stored.checkpoint.parent or "")
        return {channel: _delta_history(deltas[channel], channel, seeds) for channel in channels}

    async def _read_all(self, thread: str, namespace: str) -> Sequence[CheckpointWithWrites]:
        cached_namespace, checkpoints = self._recent_reads.pop(thread, (None, ()))
        return (
            checkpoints
            if cached_namespace == namespace
            else await self._checkpoints.list_checkpoints(thread, namespace)
        )

    def _enqueue(self, thread: str, work: Work[None]) -> None:
        self._recent_reads.pop(thread, None)
        self._queues.setdefault(thread, _WriteQueue()).works.append(work)

    def _load_checkpoint(self, stored: CheckpointWithWrites) -> Snapshot:
        body: Snapshot = self.serde.loads_typed((stored.checkpoint.type, stored.checkpoint.body))
        return body

    def _pending_writes(self, stored: CheckpointWithWrites, channel: str | None = None) -> list[PendingWrite]:
        return [
            (write.task, write.channel, self.serde.loads_typed((write.type, write.body)))
            for write in stored.writes
            if channel is None or write.channel == channel
        ]

    def _checkpoint_tuple(self, stored: CheckpointWithWrites) -> CheckpointTuple:
        record = stored.checkpoint
        return CheckpointTuple(
            config=_checkpoint_config(record.thread, record.namespace, record.id),
            checkpoint=self._load_checkpoint(stored),
            metadata=self.serde.loads_typed((record.type, record.details)),
            parent_config=_checkpoint_config(record.thread, record.namespace, record.parent) if record.parent else None,
            pending_writes=self._pending_writes(stored),
        )


def _delta_history(deltas: Sequence[list[PendingWrite]], channel: str, seeds: Mapping[str, Any]) -> DeltaChannelHistory:
    history = DeltaChannelHistory(writes=[write for writes in reversed(deltas) for write in writes])
    if channel in seeds:
        history["seed"] = seeds[channel]
    return history


def _thread_and_namespace(config: RunnableConfig) -> tuple[str, str]:
    return config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns", "")


def _checkpoint_config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
