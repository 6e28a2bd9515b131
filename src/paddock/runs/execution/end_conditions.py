"""End conditions of runs: pure functions from exit codes, usage and times to a verdict."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from paddock.llm.providers.troubleshooting import parse_key_refusal
from paddock.model.runs import EndedBy, ModelUsage, RunReasonCode, RunState
from paddock.model.sandbox import FrozenModel
from paddock.model.task import TaskModel


class EntrypointOutcome(FrozenModel):
    """End of the entrypoint, before results are collected and verified."""

    state: RunState
    ended_by: EndedBy
    reason: str
    """A sentence."""
    code: str = ""
    params: Mapping[str, str] = {}
    exit_code: int | None = None
    evidence: Mapping[str, Any] = {}
    turns: int = 0


class RunCancellation:
    """Request to cancel a run. A later request can only make the cancellation hard."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.reason = ""
        self.hard = asyncio.Event()
        """Set when the run must stop without waiting for the agent."""

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def request(self, reason: str, *, hard: bool = False) -> None:
        self.reason = self.reason or reason
        self._requested.set()
        if hard:
            self.hard.set()

    async def wait(self) -> None:
        await self._requested.wait()


class EntrypointExit(FrozenModel):
    """Facts about an entrypoint that ended by itself."""

    code: int
    exit_message: str = ""
    """Message of the daemon about the exit."""
    error: str | None = None
    """Failure reported by the agent's output."""
    uses_model: bool = False
    """Whether the task has an agent with a model."""
    produced_events: bool = True
    """Whether the output contained recognised agent events."""
    out_of_memory_kills: int = 0
    """Processes of the sandbox killed for lack of memory."""
    full_disk: Mapping[str, Any] | None = None
    """Data of the disk-full event, if there was one."""
    last_line: str = ""

    @property
    def subject(self) -> str:
        """The entrypoint in reasons: an agent, or a program without a model."""
        return "the agent" if self.uses_model else "the program"


class RunEndVerdict(FrozenModel):
    """Decision that a run ends: state, cause and reason."""

    state: RunState
    ended_by: EndedBy
    reason: str
    code: str = ""
    params: Mapping[str, str] = {}
    evidence: Mapping[str, Any] = {}


MAX_UNREACHED_REQUESTS, MAX_UNREACHED_SECONDS = 8, 60.0
"""Requests, or seconds since the first one, after which a run ends whose provider has answered none. Agents would retry
for minutes."""
MAX_REASON_LENGTH = 600
_AGENT_FAILURES = (RunReasonCode.AGENT_FAILED, RunReasonCode.MODEL_UNANSWERED, RunReasonCode.EXITED)
"""Reasons of failures that a refused key explains."""
BUDGET_ERROR = re.compile(r"budget", re.IGNORECASE)


def budget_verdict(bounds: TaskModel, traffic: ModelUsage) -> RunEndVerdict | None:
    """Return a verdict if model usage exceeds the task's limits. Usage equal to a limit is allowed."""
    tokens = traffic.input_tokens + traffic.output_tokens
    if bounds.requests is not None and traffic.requests - traffic.failed > bounds.requests:
        reason = f"it made {traffic.requests} requests to the model, and may make {bounds.requests}"
        return _over_budget(RunReasonCode.REQUESTS_SPENT, reason, used=traffic.requests, limit=bounds.requests)
    if bounds.tokens is not None and tokens > bounds.tokens:
        reason = f"it used {tokens} tokens, and may use {bounds.tokens}"
        return _over_budget(RunReasonCode.TOKENS_SPENT, reason, used=tokens, limit=bounds.tokens)
    if bounds.cost is not None and traffic.cost is not None and traffic.cost > bounds.cost:
        reason = f"it spent {traffic.cost:.4f} US dollars, and may spend {bounds.cost:g}"
        return _over_budget(RunReasonCode.COST_SPENT, reason, used=f"{traffic.cost:.4f}", limit=f"{bounds.cost:g}")
    bounded = (bounds.requests, bounds.tokens, bounds.cost) != (None, None, None)
    if bounded and traffic.failed and traffic.last_error and BUDGET_ERROR.search(traffic.last_error):
        detail = single_line_text(traffic.last_error)
        return _over_budget(RunReasonCode.BUDGET_REFUSED, f"the proxy refused another request: {detail}", detail=detail)
    return None


def _over_budget(code: RunReasonCode, reason: str, **params: object) -> RunEndVerdict:
    return RunEndVerdict(
        state=RunState.OVER_BUDGET,
        ended_by=EndedBy.BUDGET,
        reason=reason,
        code=code,
        params=format_reason_params(params),
    )


def format_reason_params(params: Mapping[str, object]) -> dict[str, str]:
    """Convert the parameters of a reason to text."""
    return {name: str(value) for name, value in params.items()}


def cancelled_verdict(reason: str) -> RunEndVerdict:
    why = f"it was cancelled: {reason}"
    code, params = RunReasonCode.CANCELLED, {"detail": reason}
    return RunEndVerdict(state=RunState.CANCELLED, ended_by=EndedBy.CANCEL, reason=why, code=code, params=params)


def silence_seconds(now: float, last_output: float, traffic: ModelUsage) -> float:
    """Return seconds since the last output or model request. Times are Unix timestamps."""
    if traffic.under_way:
        return 0.0
    return max(0.0, now - max(last_output, traffic.last_at or 0.0))


def unreached_verdict(
    traffic: ModelUsage,
    now: float,
    max_requests: int = MAX_UNREACHED_REQUESTS,
    max_seconds: float = MAX_UNREACHED_SECONDS,
) -> RunEndVerdict | None:
    """Return a verdict if no provider has answered any request of a run, and the agent has retried for long enough."""
    if traffic.under_way or traffic.unreached < 2 or not _is_never_answered(traffic):
        return None
    waited = now - (traffic.failing_since or now)
    return _unreached(traffic) if traffic.unreached >= max_requests or waited >= max_seconds else None


def _is_never_answered(traffic: ModelUsage) -> bool:
    return bool(traffic.unreached) and traffic.failing >= traffic.requests


def _unreached(traffic: ModelUsage) -> RunEndVerdict:
    error = single_line_text(traffic.last_error or "no answer")
    reason = f"none of its {traffic.requests} requests to the model was answered: {error}"
    if traffic.requests == 1:
        reason = f"its request to the model was not answered: {error}"
    params = {"requests": traffic.requests, "detail": error}
    return _failed(EndedBy.MODEL, reason, RunReasonCode.PROVIDER_UNREACHED, **params)


def exit_verdict(exit: EntrypointExit, bounds: TaskModel, traffic: ModelUsage) -> RunEndVerdict:
    """Return the verdict for an exit. The exit code alone is not enough: some agents fail with 0."""
    verdict = _judge_exit(exit, bounds, traffic)
    refusal = parse_key_refusal(traffic.last_error or "")
    explained = verdict.state is RunState.FAILED and verdict.code in _AGENT_FAILURES
    if refusal is None or not explained or traffic.failed < traffic.requests:
        return verdict
    params = {**verdict.params, "provider": refusal.provider, "key_setting": refusal.key_setting}
    return verdict.model_copy(
        update={
            "ended_by": EndedBy.AGENT_ERROR,
            "code": RunReasonCode.PROVIDER_KEY_REFUSED,
            "params": params,
        }
    )


def _judge_exit(exit: EntrypointExit, bounds: TaskModel, traffic: ModelUsage) -> RunEndVerdict:
    failed = exit.code != 0 or exit.error is not None
    outcome = f"{exit.subject} ended with exit code {exit.code}"
    if exit.code == 0 and exit.error is None:
        return _judge_success(exit, traffic)
    answer = single_line_text(traffic.last_error or "")
    model = f"; the last answer of the model: {answer}" if answer else ""
    if failed and exit.full_disk is not None:
        used, limit = exit.full_disk.get("used", exit.full_disk.get("volumes")), exit.full_disk.get("limit")
        reason = f"the sandbox's disk is full: {used} bytes written, {limit} allowed; its processes were killed"
        return _failed(EndedBy.DISK_FULL, reason, RunReasonCode.DISK_FULL, used=used, limit=limit)
    if exit.code != 0 and exit.out_of_memory_kills:
        reason = f"{outcome} after {exit.out_of_memory_kills} of its processes had been killed for want of memory"
        return _failed(EndedBy.OUT_OF_MEMORY, reason, RunReasonCode.OUT_OF_MEMORY)
    if spent := budget_verdict(bounds, traffic):
        return spent
    if exit.uses_model and _is_never_answered(traffic):
        return _unreached(traffic)  # The agent's own message only repeats it.
    if exit.error is not None:
        error = single_line_text(exit.error)
        if _contains_other(error, answer):  # Agents repeat the model's error.
            error, model = max(error, answer, key=len), ""
        reason = f"the agent failed: {error} (exit code {exit.code}){model}"
        detail = f"{error}{model}"
        return _failed(EndedBy.AGENT_ERROR, reason, RunReasonCode.AGENT_FAILED, exit_code=exit.code, detail=detail)
    if exit.exit_message.startswith("timed out"):
        reason = f"{exit.subject} {exit.exit_message}"
        return RunEndVerdict(
            state=RunState.TIMED_OUT, ended_by=EndedBy.TIMEOUT, reason=reason, code=RunReasonCode.TIMED_OUT
        )
    message = (
        "" if exit.exit_message in ("", f"exit status {exit.code}") else f": {single_line_text(exit.exit_message)}"
    )
    last = f"; its last line: {single_line_text(exit.last_line)}" if exit.last_line and not message else ""
    model = "" if _contains_other(single_line_text(exit.last_line), answer) else model
    more = f"{message}{last}{model}"
    quoted = (
        single_line_text(exit.exit_message) if message else "",
        single_line_text(exit.last_line) if last else "",
        answer if model else "",
    )
    detail = "; ".join(filter(None, quoted))
    return _failed(EndedBy.EXIT, f"{outcome}{more}", RunReasonCode.EXITED, exit_code=exit.code, detail=detail)


def _judge_success(exit: EntrypointExit, traffic: ModelUsage) -> RunEndVerdict:
    if exit.uses_model and _is_never_answered(traffic):
        return _unreached(traffic)
    if exit.uses_model and traffic.requests and traffic.failed >= traffic.requests:
        error = single_line_text(traffic.last_error or "no answer")
        reason = f"the agent finished (exit code 0), but none of its requests to the model was answered: {error}"
        return _failed(EndedBy.AGENT_ERROR, reason, RunReasonCode.MODEL_UNANSWERED, detail=error)
    if exit.uses_model and not traffic.requests and not exit.produced_events:
        reason = "the agent finished (exit code 0) without a request to the model and without output"
        return _failed(EndedBy.EXIT, reason, RunReasonCode.EXITED_SILENT)
    reason, params = f"{exit.subject} finished (exit code 0)", {"exit_code": "0", "detail": ""}
    return RunEndVerdict(
        state=RunState.SUCCEEDED, ended_by=EndedBy.EXIT, reason=reason, code=RunReasonCode.EXITED, params=params
    )


def _failed(ended_by: EndedBy, reason: str, code: RunReasonCode, **params: object) -> RunEndVerdict:
    return RunEndVerdict(
        state=RunState.FAILED, ended_by=ended_by, reason=reason, code=code, params=format_reason_params(params)
    )


def _contains_other(first: str, second: str) -> bool:
    """Return whether one text contains the other, ignoring truncation."""
    whole, part = (first, second) if len(first) >= len(second) else (second, first)
    return bool(part) and part.removesuffix("…") in whole


def shorten_reason_middle(reason: str, max_length: int = MAX_REASON_LENGTH) -> str:
    """Shorten a long reason in the middle; its end often says where to look."""
    tail = max_length // 3
    return reason if len(reason) <= max_length else f"{reason[: max_length - tail]} … {reason[-tail:]}"


def single_line_text(text: str, max_length: int = 300) -> str:
    """Return untrusted text as one line without terminal control characters."""
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in " ".join(text.split())
    )
    return text if len(text) <= max_length else f"{text[:max_length]}…"
