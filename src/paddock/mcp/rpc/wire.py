"""Constants and conversions that both ends of the gRPC transport share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from paddock import errors
from paddock.errors import PaddockError, Unavailable
from paddock.mcp.rpc.v1 import mcp_pb2

WINDOW = 256 * 2**10
"""Bytes of notifications and responses that the server may send before the client has consumed them, per exchange. One
message may be larger; it is sent when the window is not used up."""
MAX_MESSAGE = 64 * 2**20
"""Largest JSON-RPC message."""
MAX_BATCH_SIZE = 256 * 2**10
"""Bytes after which a batch is full. A larger frame is sent alone."""
MAX_BATCH_FRAMES = 128
MAX_GRPC_MESSAGE = MAX_MESSAGE + 2**20
TIMEOUT = "TIMEOUT"
AUTHORIZATION = "authorization"
KEEPALIVE_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE),
    ("grpc.max_send_message_length", MAX_GRPC_MESSAGE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


def take_batch(frames: deque[mcp_pb2.Frame]) -> mcp_pb2.FrameBatch:
    """Remove the next frames from a queue, as one batch."""
    batch: list[mcp_pb2.Frame] = []
    size = 0
    while frames and len(batch) < MAX_BATCH_FRAMES:
        size += frames[0].ByteSize()
        if batch and size > MAX_BATCH_SIZE:
            break
        batch.append(frames.popleft())
    return mcp_pb2.FrameBatch(frames=batch)


def failure_frame(exchange: int, error: PaddockError) -> mcp_pb2.Frame:
    return mcp_pb2.Frame(exchange=exchange, failure=mcp_pb2.Failure(code=error.code, message=error.message))


def error_of_failure(failure: mcp_pb2.Failure) -> PaddockError:
    """Return the error that the other end raised; one with an unknown code becomes `Unavailable`."""
    return _ERRORS.get(failure.code, Unavailable)(failure.message)


def _errors_by_code(classes: Iterable[type[PaddockError]]) -> Mapping[str, type[PaddockError]]:
    found: dict[str, type[PaddockError]] = {}
    for each in classes:
        found.setdefault(each.code, each)
    return found


_ERRORS = _errors_by_code(
    each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PaddockError)
)
