"""Relays the output of an execution to a client that may be slow or disconnect."""

from __future__ import annotations

import os
import select
import socket
import time

from ..file_descriptors import READ_SIZE, READABLE, readable_byte_count
from ..http.http11 import ChunkedWriter
from .execution_events import OutputEventEncoder, format_execution_event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HIGH_WATER = 512 * 1024
PARTIAL_LINE_DELAY = 0.2
PING_INTERVAL = 15.0
DELIVERY_TIMEOUT = 300.0


class CompletionWatcher:
    """Watches the descriptors that show when an execution has ended."""

    def __init__(self, *descriptors: int) -> None:
        self.descriptors = descriptors
        self.over = False

    def feed(self, descriptor: int, data: bytes) -> bytes:
        """Process bytes read from a descriptor (none at end of file) and return events for the client."""
        self.over = True
        return b""


class OutputRelay:
    """One loop over the outputs, the end of the execution and the client.

    Memory stays bounded by back-pressure: while the client does not take queued bytes, the outputs are
    not read, so the pipe fills and the writer waits. A client that disconnects is reported once through
    `on_client_gone`; the rest of the output is then read and dropped, so that the execution can end.
    """

    def __init__(self, chunks: ChunkedWriter, watcher: CompletionWatcher, deadline: float | None = None) -> None:
        self._chunks = chunks
        self._client: socket.socket | None = chunks.client.socket
        self._watcher = watcher
        self._deadline = deadline
        self._client_interest = select.POLLIN  # Set to 0 when the client sends its next request early.
        self._outputs: dict[int, OutputEventEncoder] = {}
        self._queue = bytearray()
        self._flush_at: float | None = None
        self._ping_at = time.monotonic() + PING_INTERVAL
        self.on_deadline: Callable[[], None] = lambda: None
        self.on_client_gone: Callable[[], None] = lambda: None

    def add_output(self, fd: int, output: OutputEventEncoder) -> None:
        os.set_blocking(fd, False)
        self._outputs[fd] = output

    @property
    def open_outputs(self) -> list[int]:
        return list(self._outputs)

    def queue_events(self, frames: bytes) -> None:
        """Queue events for the client."""
        if frames and self._client is not None:
            self._queue += self._chunks.frame(frames)
            self._ping_at = time.monotonic() + PING_INTERVAL

    def run(self) -> bool:
        """Relay until the execution ends; True if the client is still connected."""
        if self._client is not None:
            self._client.setblocking(False)
        while not self._watcher.over:
            self._poll_once()
        self._drain_outputs()
        for output in self._outputs.values():
            self.queue_events(output.flush())
        return self._client is not None

    def send_queued(self, timeout: float = DELIVERY_TIMEOUT) -> bool:
        """Send the queued bytes; True if all of them were sent."""
        give_up = time.monotonic() + timeout
        while self._queue and self._client is not None and time.monotonic() < give_up:
            poller = select.poll()
            poller.register(self._client, select.POLLOUT)
            poller.poll(1000)
            self._send()
        return self._client is not None and not self._queue

    def _poll_once(self) -> None:
        poller = select.poll()
        for descriptor in self._watcher.descriptors:
            poller.register(descriptor, select.POLLIN)
        throttled = len(self._queue) > HIGH_WATER
        if not throttled:
            for fd in self._outputs:
                poller.register(fd, select.POLLIN)
        if self._client is not None:
            poller.register(self._client, self._client_interest | (select.POLLOUT if self._queue else 0))
        ready = dict(poller.poll(self._poll_timeout_ms()))
        client_fd = self._client.fileno() if self._client is not None else -1
        for fd in [fd for fd in self._outputs if ready.get(fd, 0) & READABLE]:
            self._read_output(fd)
        for descriptor in self._watcher.descriptors:
            if ready.get(descriptor, 0) & READABLE and not self._watcher.over:
                self._read_watcher(descriptor)
        if ready.get(client_fd, 0) & (READABLE | select.POLLNVAL):
            self._check_client(hung_up=bool(ready[client_fd] & (READABLE - select.POLLIN)))
        self._send()
        self._handle_timers()

    def _poll_timeout_ms(self) -> float | None:
        moments = [moment for moment in (self._deadline, self._flush_at) if moment is not None]
        if self._client is not None:
            moments.append(self._ping_at)
        return max(0.0, min(moments) - time.monotonic()) * 1000 + 1 if moments else None

    def _handle_timers(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self.on_deadline()
        if self._flush_at is not None and now >= self._flush_at:
            self._flush_at = None
            for output in self._outputs.values():
                self.queue_events(output.flush(final=False))
        if now >= self._ping_at and self._client is not None:
            self.queue_events(format_execution_event("ping"))

    def _read_output(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        output = self._outputs[fd]
        if not data:
            self.queue_events(output.flush())
            del self._outputs[fd]
            return False
        self.queue_events(output.feed(data))
        if not output.pending:
            if not any(other.pending for other in self._outputs.values()):
                self._flush_at = None
        elif self._flush_at is None:
            self._flush_at = time.monotonic() + PARTIAL_LINE_DELAY
        return True

    def _read_watcher(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_SIZE)
        except OSError:
            data = b""
        self._drain_outputs()
        self.queue_events(self._watcher.feed(descriptor, data))

    def _drain_outputs(self) -> None:
        """Read the output written so far, without waiting for more."""
        for fd in self.open_outputs:
            waiting = readable_byte_count(fd)
            while waiting > 0 and self._read_output(fd):
                waiting -= READ_SIZE
                if len(self._queue) > HIGH_WATER and not self.send_queued(DELIVERY_TIMEOUT):
                    self._drop_client()

    def _check_client(self, hung_up: bool) -> None:
        """Tell a client that disconnected from one that only closed its sending side.

        On a Unix socket the kernel knows the difference; on TCP both count as disconnected.
        """
        if self._client is None:
            return
        try:
            silent = not self._client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            silent = hung_up = True
        disconnected = silent and (hung_up or self._client.family != socket.AF_UNIX)
        if disconnected:
            self._drop_client()
        else:
            self._client_interest = 0

    def _send(self) -> None:
        while self._queue and self._client is not None:
            try:
                sent = self._client.send(memoryview(self._queue)[:HIGH_WATER])
            except BlockingIOError:
                return
            except OSError:
                self._drop_client()
                return
            del self._queue[:sent]

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client = None
            self._queue.clear()
            self.on_client_gone()
