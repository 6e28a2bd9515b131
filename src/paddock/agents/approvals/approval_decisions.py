"""Approvals: what a person is asked, and the outcome of each decision."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddock.agents.approvals.call_summary import add_call_summary
from paddock.agents.approvals.policy_rules import (
    ASK_USER_TOOL,
    PolicySubject,
    add_always_rule,
    is_call_allowed_by_policy,
    is_denied_by_policy,
)
from paddock.agents.engines.base import CallVerdict, ToolSpec
from paddock.agents.json_schema_validation import find_schema_problems
from paddock.errors import Conflict, InvalidInput
from paddock.model.sessions import (
    Approval,
    ApprovalDecision,
    ApprovalState,
    CallResult,
    LedgerCall,
    Policy,
    QuestionChoice,
    Session,
    TextContent,
    ToolCall,
)
from paddock.store.chat_sessions.call_store import ApprovalResolution, CallWithApproval

_MAX_CHOICES = 20
_MAX_QUESTION_CHARACTERS = 20_000


def refused_call_result(text: str) -> CallResult:
    """Return the result of a call that was not run."""
    return CallResult(content=(TextContent(text=text),), refused=True)


def failed_call_result(text: str) -> CallResult:
    """Return the result of a call that failed."""
    return CallResult(content=(TextContent(text=text),), failed=True)


def create_approval(
    session: Session, turn: int, call: ToolCall, kind: str | None, now: datetime, seconds: float | None, **fields: Any
) -> Approval:
    """Create a pending approval that expires after some seconds."""
    approval = Approval(
        id=f"approval-{uuid.uuid4().hex[:16]}",
        session=session.id,
        tenant=session.tenant,
        turn=turn,
        call_id=call.id,
        name=call.name,
        kind=kind,
        arguments=call.arguments,
        digest=call.digest,
        created_at=now,
        expires_at=None if seconds is None else now + timedelta(seconds=seconds),
        **fields,
    )
    return add_call_summary(approval)


def is_user_question(spec: ToolSpec) -> bool:
    return spec.kind is None and spec.tool == ASK_USER_TOOL


def is_client_call(approval: Approval) -> bool:
    """Return whether the client application runs the call; questions of the agent to the user are not such calls."""
    return approval.type == "question" and approval.name != ASK_USER_TOOL


def user_question_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the approval fields of a question to the user."""
    question = str(arguments.get("question", ""))[:_MAX_QUESTION_CHARACTERS]
    raw_choices = arguments.get("choices")
    choices = _parse_choices(raw_choices) if isinstance(raw_choices, list | tuple) else ()
    return {"type": "question", "question": question, "choices": choices, "actions": ("answer", "reject")}


def client_call_approval_fields(call: ToolCall) -> dict[str, Any]:
    """Return the fields of the approval by which a client sends the result of a call that it runs."""
    question = f"The client application runs {call.name} and sends the result."
    return {"type": "question", "question": question, "actions": ("answer", "reject")}


def _parse_choices(raw_choices: Sequence[Any]) -> tuple[QuestionChoice, ...]:
    choices = []
    for number, each in enumerate(raw_choices[:_MAX_CHOICES], 1):
        if isinstance(each, Mapping):
            label = each.get("label", each.get("id", ""))
            choices.append(QuestionChoice(id=str(each.get("id", number)), label=str(label)))
        else:
            choices.append(QuestionChoice(id=str(number), label=str(each)))
    return tuple(choices)


def apply_approval_decision(
    session: Session,
    record: LedgerCall,
    approval: Approval,
    schema: Mapping[str, Any] | None,
    decision: ApprovalDecision,
    *,
    by: str,
    now: datetime,
) -> ApprovalResolution:
    """Apply a decision. Raises `Conflict` if it comes too late, `InvalidInput` if it does not fit the approval."""
    _check_pending(approval, now)
    if decision.digest != approval.digest:
        raise Conflict(f"approval {approval.id} has changed since it was shown; review it again")
    _check_action(approval, decision)
    changes: dict[str, Any] = {"decided_by": by, "decided_at": now, "reason": decision.reason}
    subject = PolicySubject(approval.name, record.tool, approval.kind, "other", approval.arguments)
    match decision.action:
        case "approve":
            if is_denied_by_policy(session.policy, subject):
                raise Conflict("the session's policy now denies this call; reject it, or change the policy")
            choice = _chosen_id(approval, decision.answer)
            changes |= {"state": ApprovalState.APPROVED, "always": decision.always}
            changes |= {"reason": choice} if choice is not None else {}
            if decision.always is None:
                return ApprovalResolution(approval.model_copy(update=changes))
            policy = add_always_rule(session.policy, subject, decision.always)
            approve_matching = partial(_approve_matching, session.policy, policy, by=by, now=now)
            return ApprovalResolution(approval.model_copy(update=changes), policy=policy, decide_other=approve_matching)
        case "edit":
            edited = _edited_arguments(approval, schema, decision)
            if is_denied_by_policy(session.policy, subject._replace(arguments=edited)):
                raise InvalidInput("the session's policy denies the call with these arguments")
            changes |= {"state": ApprovalState.EDITED, "edited": edited}
            return ApprovalResolution(approval.model_copy(update=changes))
        case "reject":
            choice = _chosen_id(approval, decision.answer)
            changes |= {"state": ApprovalState.REJECTED} | ({"reason": choice} if choice is not None else {})
            return ApprovalResolution(
                approval.model_copy(update=changes), rejected_call_result(approval, decision.reason)
            )
        case "answer":
            answer = _answer_text(approval, decision)
            changes |= {"state": ApprovalState.ANSWERED, "reason": answer}
            return ApprovalResolution(
                approval.model_copy(update=changes), CallResult(content=(TextContent(text=answer),))
            )


def _approve_matching(
    before: Policy, after: Policy, record: LedgerCall, approval: Approval, *, by: str, now: datetime
) -> Approval | None:
    """Approve another pending call if the new policy allows it; return None if it still needs approval."""
    subject = PolicySubject(approval.name, record.tool, approval.kind, "other", approval.arguments)
    is_overdue = approval.expires_at is not None and approval.expires_at <= now
    if (
        approval.type != "call"
        or is_overdue
        or is_call_allowed_by_policy(before, subject)
        or not is_call_allowed_by_policy(after, subject)
    ):
        return None
    changes = {"state": ApprovalState.APPROVED, "decided_by": by, "decided_at": now}
    return approval.model_copy(update=changes)


def rejected_call_result(approval: Approval, reason: str | None) -> CallResult:
    if is_client_call(approval):
        outcome = "The client application did not run this call"
    elif approval.type == "question":
        outcome = "The person declined to answer"
    else:
        outcome = "A person rejected this call, and it was not run"
    reason_text = f": {reason}" if reason else "."
    return refused_call_result(
        f"{outcome}{reason_text}\nDo not simply repeat it; find another way, or say what you cannot do without it."
    )


def expired_call_result(approval: Approval) -> CallResult:
    outcome = "Nobody answered" if approval.type == "question" else "Nobody decided about this call"
    outcome = "The client application sent no result" if is_client_call(approval) else outcome
    return refused_call_result(
        f"{outcome} in time, so it was not run. Go on without it, or say what you cannot do without it."
    )


def external_call_verdict(entry: CallWithApproval) -> CallVerdict:
    """Return the verdict on a call that an agent program runs itself."""
    approval, result = entry.approval, entry.record.result
    if approval is None:
        was_refused = result is not None and result.refused
        return CallVerdict(allowed=not was_refused, reason=result.text if was_refused and result else None)
    chosen_id = approval.reason if any(choice.id == approval.reason for choice in approval.choices) else None
    allowed = approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED)
    reason = approval.reason if chosen_id is None else None
    return CallVerdict(
        allowed=allowed,
        arguments=approval.edited,
        reason=reason or (result.text if result is not None and not allowed else None),
        always=approval.always is not None,
        choice=chosen_id,
    )


def _check_pending(approval: Approval, now: datetime) -> None:
    if approval.state is ApprovalState.PENDING:
        if approval.expires_at is None or approval.expires_at > now:
            return
        raise Conflict(f"approval {approval.id} expired at {_formtime_text(approval.expires_at)}")
    decider_text = f" by {approval.decided_by}" if approval.decided_by else ""
    time_text = f" at {_formtime_text(approval.decided_at)}" if approval.decided_at else ""
    raise Conflict(
        f"approval {approval.id} was already {approval.state}{decider_text}{time_text}; it cannot be decided again"
    )


def _formtime_text(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _check_action(approval: Approval, decision: ApprovalDecision) -> None:
    action = decision.action
    if action not in approval.actions:
        raise InvalidInput(f"approval {approval.id} cannot be decided by {action}; use {' or '.join(approval.actions)}")
    if decision.arguments is not None and action != "edit":
        raise InvalidInput(f"`arguments` belong to `edit`, not to `{action}`; nothing was decided")
    if decision.always is not None and action != "approve":
        raise InvalidInput(f"`always` belongs to `approve`, not to `{action}`; nothing was decided")
    if decision.answer is not None and action != "answer" and not approval.choices:
        raise InvalidInput(f"`answer` belongs to `answer`, not to `{action}`; nothing was decided")


def _edited_arguments(
    approval: Approval, schema: Mapping[str, Any] | None, decision: ApprovalDecision
) -> Mapping[str, Any]:
    if decision.arguments is None:
        raise InvalidInput(f"`edit` needs the complete `arguments` for approval {approval.id}")
    problems = find_schema_problems(schema or {}, decision.arguments)
    if problems:
        raise InvalidInput(f"these arguments do not fit {approval.name}: {'; '.join(problems)}")
    return decision.arguments


def _answer_text(approval: Approval, decision: ApprovalDecision) -> str:
    if decision.answer is None or not decision.answer.strip():
        raise InvalidInput(f"`answer` needs the text of the answer, for approval {approval.id}")
    for choice in approval.choices:
        if decision.answer == choice.id:
            return choice.label
    return decision.answer


def _chosen_id(approval: Approval, answer: str | None) -> str | None:
    """Return the id of the choice with which an approval is approved or rejected."""
    if answer is None:
        return None
    for choice in approval.choices:
        if answer in (choice.id, choice.label):
            return choice.id
    known_ids = ", ".join(choice.id for choice in approval.choices)
    raise InvalidInput(f"there is no choice {answer[:80]!r} in approval {approval.id}; there is {known_ids}")
