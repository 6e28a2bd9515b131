"""One call of `paddock run`: sends runs to the server, shows them, and stops them when somebody wants that."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from paddock.cli.failure import CliError, ConnectionLost, NoServer, Refused
from paddock.cli.run_follow import Reach, watch
from paddock.cli.run_plan import Job
from paddock.cli.run_view import View

if TYPE_CHECKING:
    from paddock.runs.taskfile import Loaded

UPLOAD_SECONDS = 3600.0
_PIECE = 2**18
_TRIES = 3
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Call:
    """The runs of one call, `parallel` of them at a time."""

    def __init__(self, reach: Reach, jobs: Sequence[Job], view: View, parallel: int | None = None) -> None:
        self.jobs = jobs
        self.interrupted = False
        self._reach = reach
        self._view = view
        self._room = asyncio.Semaphore(parallel or max(1, len(jobs)))
        self._bundles: dict[int, asyncio.Task[str | None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._signals = 0

    async def see_through(self) -> None:
        """Have all runs made and watch them to their ends. Ctrl-C stops them; see `interrupts`."""
        for job in self.jobs:
            self._view.add(job.progress)
        with self._interrupts():
            async with asyncio.TaskGroup() as group:
                for job in self.jobs:
                    group.create_task(self._one(job))
        await asyncio.gather(*self._stopping, return_exceptions=True)

    async def submit_all(self) -> None:
        """Have all runs made, and leave them to the server."""
        for job in self.jobs:
            await self._submit(job)

    async def _one(self, job: Job) -> None:
        async with self._room:
            if self.interrupted:
                job.progress.state = "cancelled"
                return
            try:
                await self._submit(job)
            except Refused as error:
                if len(self.jobs) == 1:
                    raise
                # The others have nothing to do with it.
                job.progress.state, job.progress.reason = "failed", str(error)
                self._view.note(f"{job.name} was refused: {error}")
                return
            if self.interrupted:
                await self._cancel(job, hard=self._signals > 1)
            await watch(self._reach, job.progress, self._view)
            job.run = await self._reach.ask("GET", _path(job))

    async def _submit(self, job: Job) -> None:
        inputs = await self._inputs(job.origin)
        made = await self._reach.ask(
            "POST", "/v1/runs", json=job.body(inputs), headers={"Idempotency-Key": job.key}, timeout=60.0
        )
        job.run = made["runs"][0]
        job.progress.id = str(job.run["id"] if job.run else "")

    async def _inputs(self, origin: Loaded) -> str | None:
        """The bundle of a file's inputs, sent once however many runs need it."""
        task = self._bundles.get(id(origin))
        if task is None:
            task = self._bundles[id(origin)] = asyncio.create_task(self._send(origin))
        return await asyncio.shield(task)

    async def _send(self, origin: Loaded) -> str | None:
        from paddock.runs.inputs import pack_inputs

        with tempfile.TemporaryFile(prefix="paddock-inputs-") as file:
            if await asyncio.to_thread(pack_inputs, origin, file) is None:
                return None
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.tell())}
            for left in reversed(range(_TRIES)):
                file.seek(0)
                try:
                    sent = await self._reach.client.ask(
                        "POST", "/v1/inputs", data=_pieces(file), headers=headers, timeout=UPLOAD_SECONDS
                    )
                    return str(sent["id"])
                except (ConnectionLost, NoServer):
                    if not left:
                        raise
                    await self._reach.again()
            return None

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C stops the runs and waits for what they have made, the second is hard, the third leaves."""
        loop, here = asyncio.get_running_loop(), asyncio.current_task()

        def heard() -> None:
            self._signals += 1
            self.interrupted = True
            under_way = [job for job in self.jobs if job.run is not None and not job.progress.over]
            if self._signals > 2 or not under_way:
                if here is not None:
                    here.cancel()
                return
            hard = self._signals == 2
            stopping = loop.create_task(self._cancel_all(under_way, hard))
            self._stopping.add(stopping)
            self._view.note("ending at once" if hard else "cancelling; Ctrl-C again ends without what was made so far")

        for number in _HEARD:
            loop.add_signal_handler(number, heard)
        try:
            yield
        finally:
            for number in _HEARD:
                loop.remove_signal_handler(number)

    async def _cancel_all(self, jobs: Sequence[Job], hard: bool) -> None:
        await asyncio.gather(*(self._cancel(job, hard) for job in jobs))

    async def _cancel(self, job: Job, hard: bool) -> None:
        body: dict[str, Any] = {"hard": hard, "reason": "interrupted on the command line"}
        with contextlib.suppress(Refused, ConnectionLost, NoServer):  # it may have ended by itself
            await self._reach.ask("POST", f"{_path(job)}/cancel", json=body, timeout=30.0)


def _path(job: Job) -> str:
    if job.run is None:
        raise CliError(f"{job.name} was not started")
    return f"/v1/runs/{quote(str(job.run['id']), safe='')}"


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece
