"""Submits the runs of one `paddock run`, shows their progress and cancels them on Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from paddock.cli.connection.reconnecting_client import ReconnectingClient
from paddock.cli.output.errors import CliError, ConnectionLost, NoServerError, RequestRefused
from paddock.cli.run.progress_views import RunView
from paddock.cli.run.run_events import watch_run
from paddock.cli.run.run_planning import PlannedRun

if TYPE_CHECKING:
    from paddock.runs.tasks.task_file_loader import LoadedTask

UPLOAD_TIMEOUT_SECONDS = 3600.0
_CHUNK = 2**18
_UPLOAD_ATTEMPTS = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunBatch:
    """The runs of one command, at most `parallel` at a time."""

    def __init__(
        self, reach: ReconnectingClient, planned_runs: Sequence[PlannedRun], view: RunView, parallel: int | None = None
    ) -> None:
        self.planned_runs = planned_runs
        self.interrupted = False
        self._client = reach
        self._view = view
        self._slots = asyncio.Semaphore(parallel or max(1, len(planned_runs)))
        self._uploads: dict[int, asyncio.Task[str | None]] = {}
        self._cancellations: set[asyncio.Task[None]] = set()
        self._signals = 0

    async def run_to_completion(self) -> None:
        """Submit all runs and show them until they end. Ctrl-C cancels them; see `_handle_interrupts`."""
        for planned in self.planned_runs:
            self._view.add_run(planned.progress)
        with self._handle_interrupts():
            async with asyncio.TaskGroup() as group:
                for planned in self.planned_runs:
                    group.create_task(self._submit_and_watch(planned))
        await asyncio.gather(*self._cancellations, return_exceptions=True)

    async def submit_all(self) -> None:
        """Submit all runs without waiting for them."""
        for planned in self.planned_runs:
            await self._submit(planned)

    async def _submit_and_watch(self, planned: PlannedRun) -> None:
        async with self._slots:
            if self.interrupted:
                planned.progress.state = "cancelled"
                return
            try:
                await self._submit(planned)
            except RequestRefused as error:
                if len(self.planned_runs) == 1:
                    raise
                # The other runs continue.
                planned.progress.state, planned.progress.reason = "failed", str(error)
                self._view.print_note(f"{planned.name} was rejected: {error}")
                return
            if self.interrupted:
                await self._cancel(planned, hard=self._signals > 1)
            await watch_run(self._client, planned.progress, self._view)
            planned.run = await self._client.request_json("GET", _run_path(planned))

    async def _submit(self, planned: PlannedRun) -> None:
        inputs = await self._upload_inputs_once(planned.task_file)
        response = await self._client.request_json(
            "POST",
            "/v1/runs",
            json=planned.request_body(inputs),
            headers={"Idempotency-Key": planned.idempotency_key},
            timeout=60.0,
        )
        planned.run = response["runs"][0]
        planned.progress.id = str(planned.run["id"] if planned.run else "")

    async def _upload_inputs_once(self, origin: LoadedTask) -> str | None:
        """Upload a task file's inputs once, even if several runs need them, and return the bundle's id."""
        task = self._uploads.get(id(origin))
        if task is None:
            task = self._uploads[id(origin)] = asyncio.create_task(self._upload_inputs(origin))
        return await asyncio.shield(task)

    async def _upload_inputs(self, origin: LoadedTask) -> str | None:
        from paddock.runs.inputs.input_packer import pack_inputs

        with tempfile.TemporaryFile(prefix="paddock-inputs-") as file:
            if await asyncio.to_thread(pack_inputs, origin, file) is None:
                return None
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.tell())}
            for left in reversed(range(_UPLOAD_ATTEMPTS)):
                file.seek(0)
                try:
                    sent = await self._client.client.request_json(
                        "POST", "/v1/inputs", data=_read_chunks(file), headers=headers, timeout=UPLOAD_TIMEOUT_SECONDS
                    )
                    return str(sent["id"])
                except (ConnectionLost, NoServerError):
                    if not left:
                        raise
                    await self._client.reconnect()
            return None

    @contextmanager
    def _handle_interrupts(self) -> Iterator[None]:
        """Cancel the runs on the first Ctrl-C, skip partial results on the second, return on the third."""
        loop, here = asyncio.get_running_loop(), asyncio.current_task()

        def handle_signal() -> None:
            self._signals += 1
            self.interrupted = True
            unfinished = [
                planned for planned in self.planned_runs if planned.run is not None and not planned.progress.has_ended
            ]
            if self._signals > 2 or not unfinished:
                if here is not None:
                    here.cancel()
                return
            hard = self._signals == 2
            stopping = loop.create_task(self._cancel_all(unfinished, hard))
            self._cancellations.add(stopping)
            self._view.print_note(
                "cancelling without partial results"
                if hard
                else "cancelling; press Ctrl-C again to skip partial results"
            )

        for number in _SIGNALS:
            loop.add_signal_handler(number, handle_signal)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _cancel_all(self, planned_runs: Sequence[PlannedRun], hard: bool) -> None:
        await asyncio.gather(*(self._cancel(planned, hard) for planned in planned_runs))

    async def _cancel(self, planned: PlannedRun, hard: bool) -> None:
        body: dict[str, Any] = {"hard": hard, "reason": "interrupted on the command line"}
        with contextlib.suppress(RequestRefused, ConnectionLost, NoServerError):  # the run may have ended already
            await self._client.request_json("POST", f"{_run_path(planned)}/cancel", json=body, timeout=30.0)


def _run_path(planned: PlannedRun) -> str:
    if planned.run is None:
        raise CliError(f"{planned.name} was not started")
    return f"/v1/runs/{quote(str(planned.run['id']), safe='')}"


async def _read_chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _CHUNK):
        yield piece
