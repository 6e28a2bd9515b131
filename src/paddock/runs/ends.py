"""When the work of a run is over, and as what: small pieces that look at figures and decide nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from paddock.model.runs import EndedBy, ReasonCode, RunState, Traffic
from paddock.model.sandbox import Frozen
from paddock.model.task import TaskModel


class Over(Frozen):
    """How the work ended, before anything was collected or verified."""

    state: RunState
    ended_by: EndedBy
    reason: str
    """A sentence."""
    code: str = ""
    params: Mapping[str, str] = {}
    exit_code: int | None = None
    evidence: Mapping[str, Any] = {}
    turns: int = 0


class Cancel:
    """Somebody's wish that a run stop. Asking again may only make it harder."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.reason = ""
        self.hard = asyncio.Event()
        """Set when nobody wants to wait for the agent to end by itself."""

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self, reason: str, *, hard: bool = False) -> None:
        self.reason = self.reason or reason
        self._asked.set()
        if hard:
            self.hard.set()

    async def wait(self) -> None:
        await self._asked.wait()


class Exit(Frozen):
    """What is known when the entrypoint has ended by itself."""

    code: int
    said: str = ""
    """Why, in the box's own words, if it did not end by itself."""
    error: str | None = None
    """What the agent told of as its failure."""
    asks: bool = False
    """Whether it is an agent that was given a model."""
    spoke: bool = True
    """Whether anything came of it that its reader understood."""
    kills: int = 0
    """Processes of the box that were killed for want of memory."""
    disk: Mapping[str, Any] | None = None
    """Figures of a disk that became full."""
    last_line: str = ""


class Verdict(Frozen):
    """That a run is over, as what, and why."""

    state: RunState
    ended_by: EndedBy
    reason: str
    code: str = ""
    params: Mapping[str, str] = {}
    evidence: Mapping[str, Any] = {}


LONGEST_REASON = 600
SPENT = re.compile(r"budget", re.IGNORECASE)


def over_budget(bounds: TaskModel, traffic: Traffic) -> Verdict | None:
    """Return the verdict on a run that has used more of models than it may. What is just used up may still do."""
    tokens = traffic.input_tokens + traffic.output_tokens
    if bounds.requests is not None and traffic.requests - traffic.failed > bounds.requests:
        reason = f"it made {traffic.requests} requests to the model, and may make {bounds.requests}"
        return _spent(ReasonCode.REQUESTS_SPENT, reason, used=traffic.requests, limit=bounds.requests)
    if bounds.tokens is not None and tokens > bounds.tokens:
        reason = f"it used {tokens} tokens, and may use {bounds.tokens}"
        return _spent(ReasonCode.TOKENS_SPENT, reason, used=tokens, limit=bounds.tokens)
    if bounds.cost is not None and traffic.cost is not None and traffic.cost > bounds.cost:
        reason = f"it spent {traffic.cost:.4f} US dollars, and may spend {bounds.cost:g}"
        return _spent(ReasonCode.COST_SPENT, reason, used=f"{traffic.cost:.4f}", limit=f"{bounds.cost:g}")
    bounded = (bounds.requests, bounds.tokens, bounds.cost) != (None, None, None)
    if bounded and traffic.failed and traffic.last_error and SPENT.search(traffic.last_error):
        detail = short(traffic.last_error)
        return _spent(ReasonCode.BUDGET_REFUSED, f"the proxy refused another request: {detail}", detail=detail)
    return None


def _spent(code: ReasonCode, reason: str, **params: object) -> Verdict:
    return Verdict(state=RunState.OVER_BUDGET, ended_by=EndedBy.BUDGET, reason=reason, code=code, params=texts(params))


def texts(params: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a reason as texts."""
    return {name: str(value) for name, value in params.items()}


def cancelled(reason: str) -> Verdict:
    why = f"it was cancelled: {reason}"
    code, params = ReasonCode.CANCELLED, {"detail": reason}
    return Verdict(state=RunState.CANCELLED, ended_by=EndedBy.CANCEL, reason=why, code=code, params=params)


def silent_for(now: float, last_output: float, traffic: Traffic) -> float:
    """Seconds since anything was written or asked of a model. All times are in seconds since 1970."""
    if traffic.under_way:
        return 0.0
    return max(0.0, now - max(last_output, traffic.last_at or 0.0))


def judge_exit(exit: Exit, bounds: TaskModel, traffic: Traffic) -> Verdict:
    """What the end of the entrypoint means. Its exit code alone is not trusted: some agents fail with 0."""
    failed = exit.code != 0 or exit.error is not None
    how = f"the entrypoint ended with exit code {exit.code}"
    if exit.code == 0 and exit.error is None:
        return _judge_success(exit, traffic)
    answer = short(traffic.last_error or "")
    model = f"; the last answer of the model: {answer}" if answer else ""
    if failed and exit.disk is not None:
        used, limit = exit.disk.get("used", exit.disk.get("volumes")), exit.disk.get("limit")
        reason = f"the sandbox's disk is full: {used} bytes written, {limit} allowed; its processes were killed"
        return _failed(EndedBy.DISK_FULL, reason, ReasonCode.DISK_FULL, used=used, limit=limit)
    if exit.code != 0 and exit.kills:
        reason = f"{how} after {exit.kills} of its processes had been killed for want of memory"
        return _failed(EndedBy.OUT_OF_MEMORY, reason, ReasonCode.OUT_OF_MEMORY)
    if spent := over_budget(bounds, traffic):
        return spent
    if exit.error is not None:
        error = short(exit.error)
        if _same(error, answer):  # Agents pass on what the model has answered.
            error, model = max(error, answer, key=len), ""
        reason = f"the agent failed: {error} (exit code {exit.code}){model}"
        detail = f"{error}{model}"
        return _failed(EndedBy.AGENT_ERROR, reason, ReasonCode.AGENT_FAILED, exit_code=exit.code, detail=detail)
    if exit.said.startswith("timed out"):
        reason = f"the entrypoint {exit.said}"
        return Verdict(state=RunState.TIMED_OUT, ended_by=EndedBy.TIMEOUT, reason=reason, code=ReasonCode.TIMED_OUT)
    told = "" if exit.said in ("", f"exit status {exit.code}") else f": {short(exit.said)}"
    last = f"; its last line: {short(exit.last_line)}" if exit.last_line and not told else ""
    model = "" if _same(short(exit.last_line), answer) else model
    more = f"{told}{last}{model}"
    quoted = (short(exit.said) if told else "", short(exit.last_line) if last else "", answer if model else "")
    detail = "; ".join(filter(None, quoted))
    return _failed(EndedBy.EXIT, f"{how}{more}", ReasonCode.EXITED, exit_code=exit.code, detail=detail)


def _judge_success(exit: Exit, traffic: Traffic) -> Verdict:
    if exit.asks and traffic.requests and traffic.failed >= traffic.requests:
        error = short(traffic.last_error or "no answer")
        reason = f"the agent ended with exit code 0, but none of its requests to the model was answered: {error}"
        return _failed(EndedBy.AGENT_ERROR, reason, ReasonCode.MODEL_UNANSWERED, detail=error)
    if exit.asks and not traffic.requests and not exit.spoke:
        reason = "the agent ended with exit code 0 without asking the model anything and without saying anything"
        return _failed(EndedBy.EXIT, reason, ReasonCode.EXITED_SILENT)
    reason, params = "the entrypoint ended with exit code 0", {"exit_code": "0", "detail": ""}
    return Verdict(
        state=RunState.SUCCEEDED, ended_by=EndedBy.EXIT, reason=reason, code=ReasonCode.EXITED, params=params
    )


def _failed(ended_by: EndedBy, reason: str, code: ReasonCode, **params: object) -> Verdict:
    return Verdict(state=RunState.FAILED, ended_by=ended_by, reason=reason, code=code, params=texts(params))


def _same(said: str, answer: str) -> bool:
    """Whether one of two texts has all of the other, as far as they are told."""
    whole, part = (said, answer) if len(said) >= len(answer) else (answer, said)
    return bool(part) and part.removesuffix("…") in whole


def bounded(reason: str, most: int = LONGEST_REASON) -> str:
    """A reason that people read to its end: of a long one the beginning, and the end, which says what to look at."""
    tail = most // 3
    return reason if len(reason) <= most else f"{reason[: most - tail]} … {reason[-tail:]}"


def short(text: str, most: int = 300) -> str:
    """What a box or a model has said, on one line that no terminal obeys."""
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return text if len(text) <= most else f"{text[:most]}…"
