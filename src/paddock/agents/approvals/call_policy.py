"""Decides for each new call: run it, ask for approval, or refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from paddock.agents.approvals.approval_decisions import (
    client_call_approval_fields,
    create_approval,
    is_user_question,
    refused_call_result,
    user_question_fields,
)
from paddock.agents.approvals.policy_rules import PolicySubject, evaluate_policy
from paddock.agents.engines.base import ToolSpec
from paddock.agents.json_schema_validation import find_schema_problems
from paddock.config.chat import ChatConfig
from paddock.model.sessions import PolicyAction, QuestionChoice, Session, ToolCall
from paddock.store.chat_sessions.call_store import AllowCall, AskApproval, CallJudge, RefuseCall

_MAX_SHOWN = 500
DENIED_MESSAGE = "The session's policy denies this call, and it was not run. Do not repeat it; find another way."


@dataclass(frozen=True)
class CallPolicy:
    """Judges calls by the available tools, the session's policy and earlier calls."""

    config: ChatConfig

    def judge_tool_call(self, turn: int, call: ToolCall, specs: Mapping[str, ToolSpec]) -> CallJudge:
        """Return the judge of a call that Paddock runs."""

        def judge_call(session: Session, repeats: int, now: datetime) -> AllowCall | AskApproval | RefuseCall:
            spec = specs.get(call.name)
            if spec is None:
                return RefuseCall(refused_call_result(_unknown_tool_message(call.name, specs)))
            problem = self._describe_problem(call, spec, repeats)
            if problem is not None:
                return RefuseCall(refused_call_result(problem))
            subject = PolicySubject(spec.name, spec.tool, spec.kind, spec.effect, call.arguments)
            action = evaluate_policy(session.policy, subject)
            if action is PolicyAction.DENY:
                return RefuseCall(refused_call_result(DENIED_MESSAGE))
            if action is PolicyAction.ALLOW and not spec.client:
                return AllowCall()
            fields = user_question_fields(call.arguments) if is_user_question(spec) else {}
            fields = client_call_approval_fields(call) if spec.client else fields
            seconds = self.config.approval_time
            return AskApproval(
                create_approval(session, turn, call, spec.kind, now, seconds, **fields), spec.input_schema
            )

        return judge_call

    def judge_external_call(
        self, turn: int, call: ToolCall, kind: str | None, effect: str, question: str, choices: Sequence[QuestionChoice]
    ) -> CallJudge:
        """Return the judge of a call that an agent program runs itself."""

        def judge_call(session: Session, repeats: int, now: datetime) -> AllowCall | AskApproval | RefuseCall:
            action = evaluate_policy(session.policy, PolicySubject(call.name, call.name, kind, effect, call.arguments))
            if action is not PolicyAction.ASK:
                return AllowCall() if action is PolicyAction.ALLOW else RefuseCall(refused_call_result(DENIED_MESSAGE))
            # The program runs the call as it asked for it, so editing and answering are not possible.
            fields = {"question": question, "choices": tuple(choices), "actions": ("approve", "reject")}
            return AskApproval(create_approval(session, turn, call, kind, now, self.config.approval_time, **fields))

        return judge_call

    def _describe_problem(self, call: ToolCall, spec: ToolSpec, repeats: int) -> str | None:
        """Return why the call cannot run as written, as a message for the model; None if it can."""
        if call.malformed is not None:
            return (
                f"The arguments of {call.name} were not a JSON object, so it was not run. You wrote: "
                f"{_shorten(call.malformed)}\nCall it again with one JSON object."
            )
        problems = find_schema_problems(spec.input_schema, dict(call.arguments))
        if problems:
            lines = "\n".join(f"- {each}" for each in problems)
            return f"The arguments do not fit {call.name}, so it was not run:\n{lines}\nCorrect them and call it again."
        if repeats >= self.config.repeats:
            return (
                f"You have made this very call {repeats} times in a row, so it was not run again. Its results are "
                "above. Do something else, or ask the user how to go on."
            )
        return None


def _unknown_tool_message(name: str, specs: Mapping[str, ToolSpec]) -> str:
    similar = get_close_matches(name, [*specs], n=3, cutoff=0.5)
    similar += [each for each, spec in specs.items() if spec.tool == name and each not in similar]
    suggestion = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return f"There is no tool {_shorten(name)}.{suggestion} list_tools says which there are."


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
