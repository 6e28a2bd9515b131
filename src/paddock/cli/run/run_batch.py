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
from paddock.cli.run.job_planning import RunJob
from paddock.cli.run.progress_views import RunView
from paddock.cli.run.run_events import watch_run

if TYPE_CHECKING:
    from paddock.runs.tasks.task_file_loader import LoadedTask

UPLOAD_SECONDS = 3600.0
_CHUNK = 2**18
_UPLOAD_ATTEMPTS = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunBatch:
    """The runs of one command, at most `parallel` at a time."""

    def __init__(
        self, reach: ReconnectingClient, jobs: Sequence[RunJob], view: RunView, parallel: int | None = None
    ) -> None:
        self.jobs = jobs
        self.interrupted = False
        self._client = reach
        self._view = view
        self._slots = asyncio.Semaphore(parallel or max(1, len(jobs)))
        self._uploads: dict[int, asyncio.Task[str | None]] = {}
        self._cancellations: set[asyncio.Task[None]] = set()
        self._signals = 0

    async def run_to_completion(self) -> None:
        """Submit all runs and show them until they end. Ctrl-C cancels them; see `_handle_interrupts`."""
        for job in self.jobs:
            self._view.add_run(job.progress)
        with self._handle_interrupts():
            async with asyncio.TaskGroup() as group:
                for job in self.jobs:
                    group.create_task(self._run_job(job))
        await asyncio.gather(*self._cancellations, return_exceptions=True)

    async def submit_all(self) -> None:
        """Submit all runs without waiting for them."""
        for job in self.jobs:
            await self._submit_job(job)

    async def _run_job(self, job: RunJob) -> None:
        async with self._slots:
            if self.interrupted:
                job.progress.state = "cancelled"
                return
            try:
                await self._submit_job(job)
            except RequestRefused as error:
                if len(self.jobs) == 1:
                    raise
                # The other runs continue.
                job.progress.state, job.progress.reason = "failed", str(error)
                self._view.print_note(f"{job.name} was rejected: {error}")
                return
            if self.interrupted:
                await self._cancel(job, hard=self._signals > 1)
            await watch_run(self._client, job.progress, self._view)
            job.run = await self._client.request_json("GET", _run_path(job))

    async def _submit_job(self, job: RunJob) -> None:
        inputs = await self._upload_inputs_once(job.task_file)
        response = await self._client.request_json(
            "POST",
            "/v1/runs",
            json=job.request_body(inputs),
            headers={"Idempotency-Key": job.idempotency_key},
            timeout=60.0,
        )
        job.run = response["runs"][0]
        job.progress.id = str(job.run["id"] if job.run else "")

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
                        "POST", "/v1/inputs", data=_read_chunks(file), headers=headers, timeout=UPLOAD_SECONDS
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

        def heard() -> None:
            self._signals += 1
            self.interrupted = True
            under_way = [job for job in self.jobs if job.run is not None and not job.progress.has_ended]
            if self._signals > 2 or not under_way:
                if here is not None:
                    here.cancel()
                return
            hard = self._signals == 2
            stopping = loop.create_task(self._cancel_all(under_way, hard))
            self._cancellations.add(stopping)
            self._view.print_note(
                "cancelling without partial results"
                if hard
                else "cancelling; press Ctrl-C again to skip partial results"
            )

        for number in _SIGNALS:
            loop.add_signal_handler(number, heard)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _cancel_all(self, jobs: Sequence[RunJob], hard: bool) -> None:
        await asyncio.gather(*(self._cancel(job, hard) for job in jobs))

    async def _cancel(self, job: RunJob, hard: bool) -> None:
        body: dict[str, Any] = {"hard": hard, "reason": "interrupted on the command line"}
        with contextlib.suppress(RequestRefused, ConnectionLost, NoServerError):  # the run may have ended already
            await self._client.request_json("POST", f"{_run_path(job)}/cancel", json=body, timeout=30.0)


def _run_path(job: RunJob) -> str:
    if job.run is None:
        raise CliError(f"{job.name} was not started")
    return f"/v1/runs/{quote(str(job.run['id']), safe='')}"


async def _read_chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _CHUNK):
        yield piece
