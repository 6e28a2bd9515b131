"""Takes one run through its stages, from wherever it stands to its end.

Each stage is written down before it begins and can be done again, so whoever takes a run over goes on with the stage
that its row names. What ended the work is written down before anything is collected: a run is never watched twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import structlog

from paddock.errors import BoxError, Conflict, HostFull, PaddockError, QuotaExceeded, SandboxNotFound, Unavailable
from paddock.model.events import EventType
from paddock.model.runs import Checked, EndedBy, ReasonCode, Result, Run, RunState, Stage
from paddock.runs import stages
from paddock.runs.conversation import write_conversation
from paddock.runs.ends import Cancel, Over, cancelled, short
from paddock.runs.harvest import Harvest, bring_home, check_all, conclude, nothing, told_of, unchecked
from paddock.runs.means import Means
from paddock.runs.presets import Rendered, reader
from paddock.runs.steps import Steps
from paddock.runs.watching import COMMAND, Watch, WatchSettings
from paddock.sandbox.client import Inside
from paddock.sandbox.images import Progress
from paddock.store.events import Happening
from paddock.store.runs import RunStore

ROOM_AGAIN = 1.0
"""Seconds before a run that found no room asks again."""
ROOM_PATIENCE = 600.0
"""Seconds that a run waits for the host's disk to have room."""
WRITE_AGAIN = 1.0
CANNOT_EXECUTE, NOT_FOUND = 126, 127
EARLY = 10.0
"""Seconds within which a shell that finds no program means that the entrypoint itself is missing."""
PAGE = 1000
ORDER = {stage: place for place, stage in enumerate(Stage)}
T = TypeVar("T")
Said = tuple[EventType, Mapping[str, Any]]
log = structlog.get_logger()


class NoRoom(PaddockError):
    """There is no room for the run's sandbox now."""


class Runner:
    """Sees to one run, as its owner."""

    def __init__(self, means: Means, store: RunStore, run: Run, owner: str, cancel: Cancel) -> None:
        self.run = run
        self.cancel = cancel
        self._means = means
        self._store = store
        self._owner = owner
        self._folder = means.folder(run.id)
        self._image: str | None = None
        if run.cancelling is not None:
            cancel.ask(run.cancelling, hard=run.hard)

    async def go(self) -> Run:
        """Go on until the run has ended, or is back in the queue. Raises `Conflict` if somebody else took it over."""
        gateway = self._means.gateway
        try:
            over = await self._over()
            return await self._end(over, await self._harvest(over))
        except NoRoom as error:
            return await self._wait_for_room(error)
        except Exception as error:
            # Whatever it is must not be met again and again: the run ends with it.
            return await self._end(await self._failure(error), Harvest(), last=True)
        finally:
            gateway.traffics.forget(self.run.id)
            gateway.routes.scripted.remove(self.run.id)

    async def _over(self) -> Over:
        """How the work ended, having seen to it that it did."""
        noted = self.run.progress.get("over")
        if noted is not None:
            return Over.model_validate(noted)
        try:
            over = await self._begin_and_watch()
        except (NoRoom, asyncio.CancelledError):
            raise
        except Exception as error:
            over = await self._failure(error)
        await self._enter(Stage.COLLECT, over=over.model_dump(mode="json"))
        return over

    async def _begin_and_watch(self) -> Over:
        if ORDER[self.run.stage] < ORDER[Stage.WATCH]:
            if await self._unless_cancelled(self._begin()) is None:
                return self._cancelled()
        else:
            await self._look_after()
        return await self._explained(await self._watch().until_over())

    async def _begin(self) -> bool:
        """All that comes before the work."""
        await asyncio.to_thread(self._prepare_folder)
        if self._at(Stage.ADMIT):
            await self._admit()
        if self._at(Stage.SANDBOX):
            await self._make_sandbox()
        await self._look_after()
        inside = await self._inside()
        what = await self._rendered()
        if self._at(Stage.INPUTS):
            await stages.put_inputs(self._means, self.run, inside, what.files)
            await self._enter(Stage.START)
        await stages.start(self._means, self.run, inside, what)
        await self._enter(Stage.WATCH)
        return True

    async def _admit(self) -> None:
        steps = Steps()
        telling: set[asyncio.Task[Any]] = set()

        def building(now: Progress) -> None:
            if steps.worth_telling(now, time.monotonic()):
                data = {"stage": Stage.ADMIT, "image": self._image_name(), "step": now.step, "fraction": now.fraction}
                telling.add(asyncio.ensure_future(self._tell(EventType.RUN_STAGE, data)))

        try:
            admitted = await stages.admit(self._means, self.run, building)
        finally:
            await asyncio.gather(*telling, return_exceptions=True)
        self._image = admitted.image
        facts = {"model": admitted.model, "scripted": admitted.scripted}
        replaced = {} if admitted.instead_of is None else {"instead_of": admitted.instead_of}
        said = [(EventType.RUN_STARTED, {"attempt": self.run.attempt, **facts, **replaced})]
        # One that has come back from waiting for room has told all this before.
        await self._enter(Stage.SANDBOX, said, fields=facts, quiet="waiting" in self.run.progress)

    async def _make_sandbox(self) -> None:
        # A sandbox under way is waited for even if the run is cancelled: only then is it known what to remove.
        making = asyncio.ensure_future(stages.make_sandbox(self._means, self.run, self._image_name()))
        try:
            sandbox = await asyncio.shield(making)
        except asyncio.CancelledError:
            if self.cancel.asked:
                await asyncio.wait([making])
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            raise
        except (QuotaExceeded, HostFull) as error:
            raise NoRoom(error.message) from error
        said = [(EventType.RUN_SANDBOX, {"sandbox_id": sandbox.id, "image": sandbox.image})]
        await self._enter(Stage.INPUTS, said, fields={"sandbox_id": sandbox.id}, waiting=None, waiting_since=None)

    async def _look_after(self) -> None:
        """Have requests to models counted and answered, as every server must for the runs that it sees to."""
        run, gateway = self.run, self._means.gateway
        if run.scripted and run.task.llm.script is not None:
            gateway.routes.scripted.add(run.id, run.task.llm.script, run.tenant)
        if run.attempt == 1 and ORDER[run.stage] < ORDER[Stage.START]:
            gateway.traffics.start(run.id, run.tenant)  # It has not asked yet, so there is nothing to look for.
        else:
            await gateway.traffics.open(run.id, run.tenant, run.sandbox_id)

    def _watch(self) -> Watch:
        task = self.run.task
        return Watch(
            self.run,
            fleet=self._means.fleet,
            traffics=self._means.gateway.traffics,
            logs=self._folder.attempt_logs(self.run.attempt),
            note=self._note,
            cancel=self.cancel,
            reader=reader(stages.preset_of(self._means, task)) if task.agent else None,
            verify=self._verified,
            settings=WatchSettings(grace=self._means.config.runs.grace),
            masker=self._means.masker(task),
        )

    async def _explained(self, over: Over) -> Over:
        """Tell an entrypoint that was never there from one that failed."""
        began = self.run.progress.get("stage_began", 0.0)
        if (
            over.ended_by is not EndedBy.EXIT
            or over.exit_code not in (CANNOT_EXECUTE, NOT_FOUND)
            or over.turns
            or time.time() - began > EARLY
        ):
            return over
        output = over.evidence.get("last_output", {})
        said = str(output.get("stderr") or output.get("stdout") or "").strip()
        with suppress(PaddockError):
            said = str((await (await self._inside()).status(COMMAND)).get("error") or said)
        last = short(said.splitlines()[-1], 500) if said else f"exit code {over.exit_code}"
        reason = f"the entrypoint could not be started: {last}"
        code, params = ReasonCode.ENTRYPOINT_MISSING, {"detail": last}
        update = {"state": RunState.FAILED, "ended_by": EndedBy.SETUP, "reason": reason, "code": code}
        return over.model_copy(update={**update, "params": params})

    async def _verified(self) -> bool:
        inside = await self._inside()
        masker = self._means.masker(self.run.task)
        for check in self.run.task.verify:
            if not (await stages.run_check(inside, check, self.run.task.env, masker)).passed:
                return False
        return True

    async def _harvest(self, over: Over) -> Harvest:
        """Take out of the box what the task wants of it, as far as it still answers, and check it."""
        harvest = Harvest.model_validate(self.run.progress.get("harvest", {}))
        if self._at(Stage.COLLECT):
            found = await self._unless_cancelled(self._collect(), over)
            harvest = found or nothing(self.run.task, "the run was cancelled")
            # Whoever has cancelled it does not wait for checks.
            checking = self.run.task.verify and self.run.sandbox_id is not None and not self.cancel.asked
            stage = Stage.VERIFY if checking else Stage.RELEASE
            await self._enter(stage, told_of(harvest), harvest=harvest.model_dump(mode="json"))
        if self._at(Stage.VERIFY):
            checks, broken = await self._unless_cancelled(self._check(), over) or ((), None)
            harvest = harvest.model_copy(update={"checks": tuple(checks), "broken": harvest.broken or broken})
            said = [(EventType.RUN_CHECKED, each.model_dump(mode="json")) for each in checks]
            await self._enter(Stage.RELEASE, said, harvest=harvest.model_dump(mode="json"))
        return harvest

    async def _collect(self) -> Harvest:
        task = self.run.task
        try:
            if self.run.model is not None or self._means.gateway.traffics.of(self.run.id).requests:
                await write_conversation(self._means.gateway.archive, self.run.tenant, self._folder)
        except (PaddockError, OSError) as error:
            log.warning("a run's conversation could not be kept", run=self.run.id, error=str(error))
        if self.run.sandbox_id is None:
            return Harvest()  # That nothing came of what never began goes without saying.
        if not task.deliverables:
            return Harvest()
        try:
            return await bring_home(await self._inside(), task, self._folder)
        except (Conflict, SandboxNotFound) as error:
            return nothing(task, "the sandbox has ended").model_copy(update={"broken": error.message})
        except Exception as error:
            log.exception("deliverables could not be collected", run=self.run.id)
            return nothing(task, f"the server could not take it: {error}")

    async def _check(self) -> tuple[Sequence[Checked], str | None]:
        try:
            return await check_all(await self._inside(), self.run.task, self._means.masker(self.run.task))
        except (Conflict, SandboxNotFound) as error:
            return unchecked(self.run.task, error.message), error.message

    async def _end(self, over: Over, harvest: Harvest, *, last: bool = False) -> Run:
        try:
            await stages.remove_sandbox(self._means, self.run)
        except (PaddockError, OSError) as error:
            log.error("the sandbox of a run is left to its expiry", run=self.run.id, error=str(error))
        traffics = self._means.gateway.traffics
        result = conclude(self.run, over, harvest, self._cancelled_since(over)).model_copy(
            update={"stages": self._stages_done(), "traffic": traffics.of(self.run.id)}
        )
        retries = self.run.task.retries
        if result.state in retries.on and self.run.attempt <= retries.times and not (last or self.cancel.asked):
            return await self._again(result)
        return await self._finish(result)

    async def _finish(self, result: Result) -> Run:
        now = datetime.now(UTC)
        data = {"state": result.state, "ended_by": result.ended_by, "reason": result.reason}
        try:
            await asyncio.to_thread(self._folder.write_result, result)
            published = await self._means.artifacts.publish(self._folder)
            if published is not None and published.problem is not None:
                evidence = {**result.evidence, "artifacts": published.problem}
                result = result.model_copy(update={"evidence": evidence})
                await asyncio.to_thread(self._folder.write_result, result)
            await self._folder.write_lines(self._folder.events, self._event_lines(now, data))
        except OSError as error:
            log.error("the folder of a run could not be completed", run=self.run.id, error=str(error))
        return await self._write(
            [(EventType.RUN_ENDED, data)],
            at=now,
            state=result.state,
            result=result,
            progress={},
            owner=None,
            owned_until=None,
            ended_at=now,
        )

    async def _event_lines(self, now: datetime, last: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """The run's events with the one that is about to be recorded, so that the file is whole when that is seen."""
        stream, number = f"run/{self.run.id}", 0
        while events := await self._means.events.read(stream, number, PAGE):
            for event in events:
                number = event.number
                yield event.model_dump_json(include={"number", "type", "at", "data"}).encode()
            if len(events) < PAGE:
                break
        ended = {"number": number + 1, "type": EventType.RUN_ENDED, "at": now.isoformat(), "data": dict(last)}
        yield json.dumps(ended, ensure_ascii=False).encode(errors="replace")

    async def _again(self, result: Result) -> Run:
        retries = self.run.task.retries
        wait = retries.backoff * 2 ** (self.run.attempt - 1)
        attempts = [*self.run.progress.get("attempts", ()), result.model_dump(mode="json", exclude_none=True)]
        return await self._write(
            [(EventType.RUN_RETRYING, {"state": result.state, "reason": result.reason, "wait": wait})],
            attempt=self.run.attempt + 1,
            sandbox_id=None,
            **self._queued(wait, {"attempts": attempts}),
        )

    async def _wait_for_room(self, error: NoRoom) -> Run:
        """Back to the queue, saying what is waited for."""
        since = self.run.progress.get("waiting_since") or time.time()
        progress = {name: value for name, value in self.run.progress.items() if name in ("attempts", "stages")}
        progress |= {"waiting": error.message, "waiting_since": since}
        if isinstance(error.__cause__, HostFull) and time.time() - since > ROOM_PATIENCE:
            over = Over(state=RunState.FAILED, ended_by=EndedBy.SETUP, reason=error.message, code=HostFull.code)
            return await self._end(over, Harvest())
        return await self._write([], **self._queued(ROOM_AGAIN, progress))

    def _queued(self, wait: float, progress: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "state": RunState.QUEUED,
            "stage": Stage.ADMIT,
            "owner": None,
            "owned_until": None,
            "not_before": datetime.now(UTC) + timedelta(seconds=wait),
            "progress": progress,
        }

    async def _failure(self, error: Exception) -> Over:
        """What it means for the run that a stage could not be done."""
        if isinstance(error, Conflict) and not await self._ours():
            raise error
        evidence: dict[str, Any] = {"stage": self.run.stage}
        if isinstance(error, BoxError | SandboxNotFound | Conflict) and self._sandbox_began():
            with suppress(PaddockError, OSError):
                evidence |= await stages.evidence_of(self._means, self.run)
            reason = f"the sandbox ended in the stage {self.run.stage}: {error}"
            code, params = ReasonCode.SANDBOX_ENDED, {"detail": str(error)}
            return Over(
                state=RunState.LOST,
                ended_by=EndedBy.BOX_DIED,
                reason=reason,
                code=code,
                params=params,
                evidence=evidence,
            )
        failed, values = PaddockError.code, {}
        if isinstance(error, PaddockError):
            reason, failed, values = error.message, error.code, dict(error.params)
        elif isinstance(error, OSError):
            failed, values = ReasonCode.HOST_ERROR, {"detail": error.strerror or str(error)}
            reason = f"the server could not do it: {error.strerror or error}"
        else:
            log.exception("a stage of a run failed in a way that nobody foresaw", run=self.run.id, stage=self.run.stage)
            reason = f"Paddock itself failed in the stage {self.run.stage}: {error!r}; the server's log has more"
        return Over(
            state=RunState.FAILED,
            ended_by=EndedBy.SETUP,
            reason=reason,
            code=failed,
            params=values,
            evidence=evidence,
        )

    async def _ours(self) -> bool:
        return (await self._store.get(self.run.id)).owner == self._owner

    def _cancelled(self) -> Over:
        return Over(**dict(cancelled(self.cancel.reason)))

    def _cancelled_since(self, over: Over) -> str | None:
        """Why it was cancelled after its work had ended in another way, if it was."""
        return self.cancel.reason if self.cancel.asked and over.ended_by is not EndedBy.CANCEL else None

    async def _unless_cancelled(self, work: Coroutine[Any, Any, T], over: Over | None = None) -> T | None:
        """What the work returns, or None when the run is cancelled first; work on what was cancelled already goes on
        unless somebody wants it hard."""
        wanted = self.cancel.hard.wait if over is not None and over.ended_by is EndedBy.CANCEL else self.cancel.wait
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(wanted())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return await working
            working.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await working
            return None
        finally:
            for each in (working, stopping):
                each.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    def _at(self, stage: Stage) -> bool:
        return self.run.stage is stage

    def _sandbox_began(self) -> bool:
        return self.run.sandbox_id is not None or self.run.stage is Stage.SANDBOX

    def _image_name(self) -> str:
        if self._image is None:
            self._image = stages.image_of(self._means, self.run.task, stages.preset_of(self._means, self.run.task))
        return self._image

    async def _rendered(self) -> Rendered:
        preset = stages.preset_of(self._means, self.run.task)
        home = await stages.home_of(self._means, self._image_name())
        return stages.rendered(self._means, self.run.task, preset, self.run.model, home)

    async def _inside(self) -> Inside:
        assert self.run.sandbox_id is not None
        return await self._means.fleet.inside(self.run.tenant, self.run.sandbox_id)

    def _prepare_folder(self) -> None:
        self._folder.create()
        if self.run.attempt > 1 and ORDER[self.run.stage] < ORDER[Stage.START]:
            self._folder.clear_deliverables()
        if not self._folder.task.exists():
            self._folder.write_task(self._means.readable(self.run.task))

    def _stage_times(self) -> dict[str, float]:
        """Seconds per stage, that under way included."""
        times = dict(self.run.progress.get("stages", {}))
        began = self.run.progress.get("stage_began") or self.run.changed_at.timestamp()
        stage = str(self.run.stage)
        times[stage] = round(times.get(stage, 0.0) + max(0.0, time.time() - began), 4)
        return times

    def _stages_done(self) -> dict[str, float]:
        """Seconds of the stages that did something: without a sandbox nothing is collected, checked or removed."""
        times = self._stage_times()
        if self.run.sandbox_id is None:
            for stage in (Stage.COLLECT, Stage.VERIFY, Stage.RELEASE):
                times.pop(stage, None)
        return times

    async def _enter(
        self,
        stage: Stage,
        said: Sequence[Said] = (),
        *,
        fields: Mapping[str, Any] | None = None,
        quiet: bool = False,
        **notes: Any,
    ) -> None:
        """Write down that a stage begins, with what the one before has found out."""
        kept = {**self.run.progress, "stages": self._stage_times(), "stage_began": time.time(), **notes}
        progress = {name: value for name, value in kept.items() if value is not None}
        # Without a sandbox there is nothing to collect or to release.
        empty = stage in (Stage.COLLECT, Stage.RELEASE) and self.run.sandbox_id is None
        told = [] if quiet else [*said, *([] if empty else [(EventType.RUN_STAGE, {"stage": stage})])]
        await self._write(told, stage=stage, progress=progress, **fields or {})

    async def _note(self, watched: Mapping[str, Any]) -> None:
        progress = {**self.run.progress, "watch": dict(watched)}
        self.run = await self._store.update(self.run.id, self._owner, progress=progress)

    async def _write(self, said: Sequence[Said], *, at: datetime | None = None, **fields: Any) -> Run:
        """Change the run's row and tell of it, together. A full disk is waited for: nothing else can be done then."""
        fields.setdefault("changed_at", at or datetime.now(UTC))
        changing = self._store.changing(self.run.id, self._owner, **fields)
        happened = [Happening(f"run/{self.run.id}", kind, data, self.run.tenant, at) for kind, data in said]
        while True:
            try:
                self.run = await self._means.events.together(changing, lambda _: happened)
                return self.run
            except Unavailable as error:
                log.error("a run's progress could not be written and will be again", run=self.run.id, error=str(error))
                await asyncio.sleep(WRITE_AGAIN)

    async def _tell(self, kind: EventType, data: Mapping[str, Any]) -> None:
        await self._means.events.append(f"run/{self.run.id}", kind, data, tenant=self.run.tenant)
