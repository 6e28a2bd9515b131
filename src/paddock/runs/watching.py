"""Watches a run's entrypoint from its start to its end.

    watch = Watch(run, fleet=fleet, traffics=traffics, logs=folder.logs, note=note, cancel=cancel,
                  reader=reader, verify=verify, settings=WatchSettings(grace=config.runs.grace))
    over = await watch.until_over()

The entrypoint has been started under the command id `task` (`COMMAND`) in the sandbox `run.sandbox_id`.

- `reader` makes the agent's events of its output; a fresh one for each `Watch`. None: each line is output.
- `logs` is the directory that gets `agent.out` and `agent.err`.
- `note(mapping)` stores the mapping as `run.progress["watch"]`, in place of the one before. A later `Watch` of the same
  attempt, given a run with that progress, goes on with nothing lost and nothing doubled. A new attempt begins without,
  with an empty `logs`, after a RUN_STARTED event in the run's stream.
- `cancel.ask(reason, hard=…)` may be called at any time, before `until_over` as well.
- `verify()` tells whether all checks pass; needed only for `end.verified`.

`until_over` returns once: nothing of the entrypoint runs any more, all it wrote is in the logs and told of as events.
It raises nothing for whatever the box does; being cancelled leaves everything as it is for the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from paddock.errors import InvalidInput, NotFound, PaddockError, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.model.runs import EndedBy, ReasonCode, Run, RunState, Traffic
from paddock.model.sandbox import Sandbox
from paddock.runs.deaths import Deaths, Patience, full_disk
from paddock.runs.ends import Cancel, Exit, Over, Verdict, cancelled, judge_exit, over_budget, silent_for
from paddock.runs.following import Following
from paddock.runs.intake import Intake, Place, noted
from paddock.runs.masking import Masker
from paddock.runs.outputs import OutputLogs
from paddock.runs.stopping import stop
from paddock.runs.telling import OutputReader, Telling
from paddock.sandbox.client import Ended

COMMAND = "task"
"""The id of the entrypoint among the commands of its box."""
SHOWN = 2000
"""Bytes of the end of each stream that are evidence."""
DRAINED, HURRIED = 5.0, 0.5
"""Seconds for the rest of the output after the end, and when nobody wants to wait."""
log = structlog.get_logger()

Note = Callable[[Mapping[str, Any]], Awaitable[None]]
Verify = Callable[[], Awaitable[bool]]


class Traffics(Protocol):
    """What runs ask of models."""

    def of(self, run_id: str) -> Traffic: ...

    async def changed(self, run_id: str, after: Traffic | None = None) -> Traffic:
        """Return when it is another than `after`."""
        ...


@dataclass(frozen=True)
class WatchSettings:
    """Bounds and patience; the defaults are for people's servers, tests are less patient."""

    grace: float = 10.0
    """Seconds between asking the entrypoint to end and killing it."""
    log_bytes: int = 256 * 2**20
    """Most that is kept of what one run writes: of each stream half of this, the beginning and the end."""
    patience: Patience = Patience()
    tick: float = 0.25
    """Between two looks at the clock and for the file that ends the run."""
    note_every: float = 5.0
    usage_every: float = 1.0
    verify_every: float = 5.0
    """Between two tries of the checks where no reader tells of turns."""


class Watch:
    """One run's entrypoint, from its start to its end."""

    def __init__(
        self,
        run: Run,
        *,
        fleet: Fleet,
        traffics: Traffics,
        logs: Path,
        note: Note,
        cancel: Cancel,
        reader: OutputReader | None = None,
        verify: Verify | None = None,
        settings: WatchSettings | None = None,
        masker: Masker | None = None,
    ) -> None:
        self._run = run
        self._masker = masker
        self._end = run.task.end
        self._fleet = fleet
        self._traffics = traffics
        self._directory = logs
        self._note = note
        self._cancel = cancel
        self._reader = reader
        self._verify = verify
        self._settings = settings or WatchSettings()
        self._verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def until_over(self) -> Over:
        """Watch until the work has ended or was ended, and say how."""
        run = self._run
        try:
            self._sandbox = await self._fleet.get(run.tenant, run.sandbox_id or "")
        except SandboxNotFound:
            verdict = _lost(EndedBy.BOX_DIED, "the sandbox ended: somebody deleted it", ReasonCode.SANDBOX_DELETED)
            return Over(state=verdict.state, ended_by=verdict.ended_by, reason=verdict.reason, code=verdict.code)
        self._deaths = Deaths(self._fleet, self._sandbox, self._settings.patience)
        place = noted(run)
        self._telling = Telling(self._fleet.events, run)
        if place is None:
            place = Place(attempt=run.attempt, began=time.time())
            await self._telling.find(0, 0, 0)
            await self._store(place)
        else:
            self._telling.usage = dict(place.usage)
            await self._telling.find(place.number, place.told, place.told_to)
            self._stored = place
        self._began = place.began
        if place.verdict is not None:
            self._decide(place.verdict)
        logs = OutputLogs(self._directory, self._settings.log_bytes)
        self._logs = logs
        self._intake = Intake(run, place, logs, self._telling, self._reader, self._decide, self._masker)
        try:
            return await self._watch(self._sandbox)
        finally:
            logs.close()
            await self._intake.close()

    async def _watch(self, sandbox: Sandbox) -> Over:
        following = asyncio.create_task(self._follow(sandbox))
        telling = asyncio.create_task(self._telling.run())
        others = [asyncio.create_task(work) for work in self._works()]
        tasks = [following, telling, *others]
        try:
            await _first(self._verdict, *tasks)
            verdict = self._verdict.result()
            await _cancelled(*others)
            await self._keep_place()
            await stop(
                verdict,
                fleet=self._fleet,
                sandbox=sandbox,
                command=COMMAND,
                ended=self._ended,
                cancel=self._cancel,
                grace=self._settings.grace,
            )
            if verdict.state is not RunState.LOST:
                await asyncio.wait([self._ended], timeout=HURRIED if self._cancel.hard.is_set() else DRAINED)
            await _cancelled(following, telling)
            return await self._finish(verdict)
        finally:
            await _cancelled(*tasks)

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        works = [self._die(), self._keep_time(), self._keep_notes(), self._keep_count(), self._obey()]
        if self._end.file is not None:
            works.append(self._look_for(self._end.file))
        if self._end.verified and self._verify is not None:
            works.append(self._keep_verifying(self._verify))
        return works

    def _decide(self, verdict: Verdict) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdict)

    async def _follow(self, sandbox: Sandbox) -> None:
        keep = self._settings.log_bytes // 4
        beginning = self._intake.cursor
        following = Following(
            self._fleet, sandbox, COMMAND, beginning, keep=keep, enough=2 * keep, doubt=self._deaths.doubt
        )
        try:
            async with aclosing(following.pieces()) as pieces:
                async for each in pieces:
                    if isinstance(each, Ended):
                        await self._intake.finish()
                        self._ended.set_result(each)
                        await self._judge(each)
                        break
                    await self._intake.take(each)
                    if each.missed:
                        await self._keep_place()
        except NotFound as error:
            reason = f"the sandbox knows nothing of the entrypoint: {error}"
            self._decide(_lost(EndedBy.SETUP, reason, ReasonCode.ENTRYPOINT_LOST))
        await asyncio.Future()  # Others decide now; being done would mean something went wrong.

    async def _judge(self, ended: Ended) -> None:
        traffic = self._traffics.of(self._run.id)
        status = await self._deaths.status()
        found = Exit(
            code=ended.exit_code,
            said=ended.reason,
            error=self._intake.error,
            asks=self._run.task.agent is not None and self._run.model is not None,
            spoke=self._telling.said or self._reader is None,
            kills=status.out_of_memory_kills,  # Since the box began, and it is there for this attempt alone.
            disk=await full_disk(self._fleet.events, self._sandbox),
            last_line=self._last_line(),
        )
        verdict = judge_exit(found, self._run.task.llm, traffic)
        if verdict.state is RunState.SUCCEEDED and not self._end.exit:
            self._intake.turned.set()
            if self._end.file is not None or self._end.verified:
                return  # It may have gone on in the background.
            reason = "the entrypoint ended with exit code 0 before anything came that was to end the run"
            code = ReasonCode.EXITED_EARLY
            verdict = Verdict(state=RunState.FAILED, ended_by=EndedBy.EXIT, reason=reason, code=code)
        self._decide(verdict)

    async def _die(self) -> None:
        self._decide(await self._deaths.wait())

    async def _obey(self) -> None:
        await self._cancel.wait()
        self._decide(cancelled(self._cancel.reason))

    async def _keep_time(self) -> None:
        while True:
            now = time.time()
            if now - self._began >= self._end.timeout:
                limit = f"{self._end.timeout:g}"
                reason = f"it took longer than {limit} seconds"
                self._decide(_timed_out(EndedBy.TIMEOUT, reason, ReasonCode.TIMED_OUT, limit))
            silence = self._end.silence
            quiet = silent_for(now, self._intake.last_output, self._traffics.of(self._run.id))
            if silence is not None and quiet >= silence:
                reason = f"it wrote nothing and asked no model for {silence:g} seconds"
                self._decide(_timed_out(EndedBy.SILENCE, reason, ReasonCode.SILENT, f"{silence:g}"))
            await self._intake.look_at_rest()
            await asyncio.sleep(self._settings.tick)

    async def _look_for(self, path: str) -> None:
        while True:
            try:
                inside = await self._fleet.inside(self._run.tenant, self._sandbox.id)
                async with asyncio.timeout(self._settings.patience.silent):
                    async with inside.request("GET", "/files/info", params={"path": path}):
                        reason = f"{path} is there"
                        self._decide(_succeeded(EndedBy.FILE, reason, ReasonCode.FILE_FOUND, path=path))
            except (NotFound, InvalidInput):
                pass
            except (PaddockError, TimeoutError, RuntimeError):
                self._deaths.doubt()
            await asyncio.sleep(2 * self._settings.tick)

    async def _keep_verifying(self, verify: Verify) -> None:
        while True:
            if self._reader is not None:
                await self._intake.turned.wait()
                self._intake.turned.clear()
            else:
                await asyncio.sleep(self._settings.verify_every)
            try:
                if await verify():
                    reason = "all checks pass"
                    self._decide(_succeeded(EndedBy.VERIFIED, reason, ReasonCode.CHECKS_PASSED))
            except (PaddockError, RuntimeError):
                self._deaths.doubt()

    async def _keep_count(self) -> None:
        """Tell of what is asked of models, and end the run when it is too much."""
        while True:
            traffic = self._traffics.of(self._run.id)
            if traffic.requests or traffic.under_way:
                await self._telling.tell_usage(self._usage(traffic))
            if spent := over_budget(self._run.task.llm, traffic):
                self._decide(spent)
            await self._traffics.changed(self._run.id, traffic)
            await asyncio.sleep(self._settings.usage_every)

    def _usage(self, traffic: Traffic) -> dict[str, Any]:
        figures = traffic.model_dump(include={"requests", "input_tokens", "output_tokens", "cost"})
        return {"turns": self._intake.turns, **figures}

    async def _keep_notes(self) -> None:
        place = self._intake.place
        while True:
            await asyncio.sleep(self._settings.note_every)
            if self._telling.settled(place.nth, place.cursor):
                await self._store_told(place)
                place = self._intake.place

    async def _keep_place(self) -> None:
        """Tell of everything at once, and note how far it has come."""
        place = self._intake.place
        if await self._telling.flush():
            await self._store_told(place)

    async def _store_told(self, place: Place) -> None:
        verdict = self._verdict.result() if self._verdict.done() else None
        telling = self._telling
        update = {
            "told": telling.told,
            "told_to": telling.told_to,
            "number": telling.number,
            "usage": telling.usage,
            "verdict": verdict,
        }
        place = place.model_copy(update=update)
        if place != self._stored:
            await self._store(place)

    async def _store(self, place: Place) -> None:
        self._stored = place
        try:
            await self._note(place.model_dump(mode="json"))
        except PaddockError as error:
            log.warning("the place of a run could not be noted yet", run=self._run.id, error=str(error))

    async def _finish(self, verdict: Verdict) -> Over:
        if not self._ended.done():
            await self._intake.finish()
        await self._telling.flush()
        traffic = self._traffics.of(self._run.id)
        if traffic.requests or self._intake.turns:
            await self._telling.tell_usage(self._usage(traffic))
        evidence = await self._evidence(verdict)
        await asyncio.to_thread(self._logs.finish)
        await self._keep_place()
        return Over(
            state=verdict.state,
            ended_by=verdict.ended_by,
            reason=verdict.reason,
            code=verdict.code,
            params=verdict.params,
            exit_code=self._ended.result().exit_code if self._ended.done() else None,
            evidence=evidence,
            turns=max(self._intake.turns, self._stored.turns),
        )

    async def _evidence(self, verdict: Verdict) -> dict[str, Any]:
        last = {stream: data.decode(errors="replace") for stream, data in self._logs.tails(SHOWN).items() if data}
        kills = (await self._deaths.status()).out_of_memory_kills
        disk = await full_disk(self._fleet.events, self._sandbox)
        found = {
            "last_output": last,
            "out_of_memory_kills": kills,
            "disk": dict(disk) if disk else None,
            "missed_bytes": self._intake.place.missed,
            "slow_patterns": self._intake.too_slow,
        }
        return {**verdict.evidence, **{name: value for name, value in found.items() if value}}

    def _last_line(self) -> str:
        tails = self._logs.tails(SHOWN)
        lines = (tails["stderr"].strip() or tails["stdout"].strip()).splitlines()
        return lines[-1].decode(errors="replace") if lines else ""


async def _first(verdict: asyncio.Future[Verdict], *tasks: asyncio.Task[None]) -> None:
    """Wait for a verdict; raises what a task could not do, so that nobody waits for ever."""
    left: set[asyncio.Future[Any]] = {verdict, *tasks}
    while not verdict.done():
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for each in done - {verdict}:
            each.result()


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _succeeded(ended_by: EndedBy, reason: str, code: ReasonCode, **params: str) -> Verdict:
    return Verdict(state=RunState.SUCCEEDED, ended_by=ended_by, reason=reason, code=code, params=params)


def _lost(ended_by: EndedBy, reason: str, code: ReasonCode) -> Verdict:
    return Verdict(state=RunState.LOST, ended_by=ended_by, reason=reason, code=code)


def _timed_out(ended_by: EndedBy, reason: str, code: ReasonCode, seconds: str) -> Verdict:
    params = {"seconds": seconds}
    return Verdict(state=RunState.TIMED_OUT, ended_by=ended_by, reason=reason, code=code, params=params)
