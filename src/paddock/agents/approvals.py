"""What is asked of a person, and what comes of what they decide."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddock.agents.call_summary import summarized
from paddock.agents.client_tools import is_client_call
from paddock.agents.engines.base import ToolSpec, Verdict
from paddock.agents.policy import ASK_USER, Subject, allowed, denied, with_always
from paddock.agents.schemas import problems
from paddock.errors import Conflict, InvalidInput
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallRecord,
    CallResult,
    Choice,
    Decision,
    Policy,
    Session,
    TextContent,
)
from paddock.store.calls import Entry, Resolution

_MOST_CHOICES = 20
_LONGEST_QUESTION = 20_000


def refusal(text: str) -> CallResult:
    """The result of a call that is not run."""
    return CallResult(content=(TextContent(text=text),), refused=True)


def failure(text: str) -> CallResult:
    """The result of a call of which nothing good can be said."""
    return CallResult(content=(TextContent(text=text),), failed=True)


def new_approval(
    session: Session, turn: int, call: Call, kind: str | None, now: datetime, seconds: float | None, **fields: Any
) -> Approval:
    """Something to decide, from now on for so many seconds."""
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
    return summarized(approval)


def is_question(spec: ToolSpec) -> bool:
    return spec.kind is None and spec.tool == ASK_USER


def question_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What an approval has more if the agent asks a person something."""
    question = str(arguments.get("question", ""))[:_LONGEST_QUESTION]
    given = arguments.get("choices")
    choices = _choices(given) if isinstance(given, list | tuple) else ()
    return {"type": "question", "question": question, "choices": choices, "actions": ("answer", "reject")}


def client_call_fields(call: Call) -> dict[str, Any]:
    """Return the fields of the approval by which a client sends the result of a call that it runs."""
    question = f"The client application runs {call.name} and sends the result."
    return {"type": "question", "question": question, "actions": ("answer", "reject")}


def _choices(given: Sequence[Any]) -> tuple[Choice, ...]:
    made = []
    for number, each in enumerate(given[:_MOST_CHOICES], 1):
        if isinstance(each, Mapping):
            label = each.get("label", each.get("id", ""))
            made.append(Choice(id=str(each.get("id", number)), label=str(label)))
        else:
            made.append(Choice(id=str(number), label=str(each)))
    return tuple(made)


def resolve(
    session: Session,
    record: CallRecord,
    approval: Approval,
    schema: Mapping[str, Any] | None,
    decision: Decision,
    *,
    by: str,
    now: datetime,
) -> Resolution:
    """What a decision comes to. Raises `Conflict` where it comes too late, `InvalidInput` where it makes no sense."""
    _check_pending(approval, now)
    if decision.digest != approval.digest:
        raise Conflict(f"approval {approval.id} is about something else than what was shown; look at it again")
    _check_sense(approval, decision)
    made: dict[str, Any] = {"decided_by": by, "decided_at": now, "reason": decision.reason}
    subject = Subject(approval.name, record.tool, approval.kind, "other", approval.arguments)
    match decision.action:
        case "approve":
            if denied(session.policy, subject):
                raise Conflict("the session's policy denies this call by now; reject it, or change the policy")
            choice = _choice(approval, decision.answer)
            made |= {"state": ApprovalState.APPROVED, "always": decision.always}
            made |= {"reason": choice} if choice is not None else {}
            if decision.always is None:
                return Resolution(approval.model_copy(update=made))
            policy = with_always(session.policy, subject, decision.always)
            also = partial(_also, session.policy, policy, by=by, now=now)
            return Resolution(approval.model_copy(update=made), policy=policy, also=also)
        case "edit":
            edited = _edited(approval, schema, decision)
            if denied(session.policy, subject._replace(arguments=edited)):
                raise InvalidInput("the session's policy denies the call with these arguments")
            made |= {"state": ApprovalState.EDITED, "edited": edited}
            return Resolution(approval.model_copy(update=made))
        case "reject":
            choice = _choice(approval, decision.answer)
            made |= {"state": ApprovalState.REJECTED} | ({"reason": choice} if choice is not None else {})
            return Resolution(approval.model_copy(update=made), rejected(approval, decision.reason))
        case "answer":
            answer = _answer(approval, decision)
            made |= {"state": ApprovalState.ANSWERED, "reason": answer}
            return Resolution(approval.model_copy(update=made), CallResult(content=(TextContent(text=answer),)))


def _also(
    before: Policy, after: Policy, record: CallRecord, approval: Approval, *, by: str, now: datetime
) -> Approval | None:
    """Another call that waits, approved if the policy asks no more about it; `None` if it still does."""
    subject = Subject(approval.name, record.tool, approval.kind, "other", approval.arguments)
    late = approval.expires_at is not None and approval.expires_at <= now
    if approval.type != "call" or late or allowed(before, subject) or not allowed(after, subject):
        return None
    made = {"state": ApprovalState.APPROVED, "decided_by": by, "decided_at": now}
    return approval.model_copy(update=made)


def rejected(approval: Approval, reason: str | None) -> CallResult:
    if is_client_call(approval):
        what = "The client application did not run this call"
    elif approval.type == "question":
        what = "The person does not want to answer"
    else:
        what = "A person rejected this call, and it was not run"
    why = f": {reason}" if reason else "."
    return refusal(f"{what}{why}\nDo not simply repeat it; find another way, or say what you cannot do without it.")


def expired(approval: Approval) -> CallResult:
    what = "Nobody answered" if approval.type == "question" else "Nobody decided about this call"
    what = "The client application sent no result" if is_client_call(approval) else what
    return refusal(f"{what} in time, so it was not run. Go on without it, or say what you cannot do without it.")


def verdict(entry: Entry) -> Verdict:
    """What was said of a call that somebody else carries out."""
    approval, result = entry.approval, entry.record.result
    if approval is None:
        refused = result is not None and result.refused
        return Verdict(allowed=not refused, reason=result.text if refused and result else None)
    chosen = approval.reason if any(choice.id == approval.reason for choice in approval.choices) else None
    allowed = approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED)
    reason = approval.reason if chosen is None else None
    return Verdict(
        allowed=allowed,
        arguments=approval.edited,
        reason=reason or (result.text if result is not None and not allowed else None),
        always=approval.always is not None,
        choice=chosen,
    )


def _check_pending(approval: Approval, now: datetime) -> None:
    if approval.state is ApprovalState.PENDING:
        if approval.expires_at is None or approval.expires_at > now:
            return
        raise Conflict(f"approval {approval.id} has expired at {_moment(approval.expires_at)}")
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    at = f" at {_moment(approval.decided_at)}" if approval.decided_at else ""
    raise Conflict(f"approval {approval.id} was {approval.state} already{by}{at}; a decision counts once")


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _check_sense(approval: Approval, decision: Decision) -> None:
    action = decision.action
    if action not in approval.actions:
        raise InvalidInput(f"approval {approval.id} cannot be decided by {action}; use {' or '.join(approval.actions)}")
    if decision.arguments is not None and action != "edit":
        raise InvalidInput(f"`arguments` belong to `edit`, not to `{action}`; nothing was decided")
    if decision.always is not None and action != "approve":
        raise InvalidInput(f"`always` belongs to `approve`, not to `{action}`; nothing was decided")
    if decision.answer is not None and action != "answer" and not approval.choices:
        raise InvalidInput(f"`answer` belongs to `answer`, not to `{action}`; nothing was decided")


def _edited(approval: Approval, schema: Mapping[str, Any] | None, decision: Decision) -> Mapping[str, Any]:
    if decision.arguments is None:
        raise InvalidInput(f"`edit` needs `arguments`, all of them as they shall be, for approval {approval.id}")
    wrong = problems(schema or {}, decision.arguments)
    if wrong:
        raise InvalidInput(f"these arguments do not fit {approval.name}: {'; '.join(wrong)}")
    return decision.arguments


def _answer(approval: Approval, decision: Decision) -> str:
    if decision.answer is None or not decision.answer.strip():
        raise InvalidInput(f"`answer` needs the text of the answer, for approval {approval.id}")
    for choice in approval.choices:
        if decision.answer == choice.id:
            return choice.label
    return decision.answer


def _choice(approval: Approval, answer: str | None) -> str | None:
    """The id of the choice that somebody approves or rejects by."""
    if answer is None:
        return None
    for choice in approval.choices:
        if answer in (choice.id, choice.label):
            return choice.id
    known = ", ".join(choice.id for choice in approval.choices)
    raise InvalidInput(f"there is no choice {answer[:80]!r} in approval {approval.id}; there is {known}")
