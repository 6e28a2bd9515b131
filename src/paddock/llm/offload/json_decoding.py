"""Decode long JSON texts in a worker process."""

from __future__ import annotations

import pickle
from typing import Any

from paddock.llm.offload.worker_pool import OffloadWorkerPool


async def decode_json_in_worker(workers: OffloadWorkerPool, text: bytes, max_values: int | None = None) -> Any:
    """Decode a text. Raises `InvalidJson`, `WorkersBusy`, and `TooLarge` for more than `max_values` values."""
    _, pickled = await workers.run_task("decode", max_values, text)
    return pickle.loads(pickled)  # noqa: S301 - from a child process of this program
