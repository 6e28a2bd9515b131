"""What becomes of a call before anybody runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from paddock.agents.approvals import client_call_fields, is_question, new_approval, question_fields, refusal
from paddock.agents.engines.base import ToolSpec
from paddock.agents.policy import Subject, judge
from paddock.agents.schemas import problems
from paddock.config.chat import ChatConfig
from paddock.model.sessions import Action, Call, Choice, Session
from paddock.store.calls import Allow, Ask, Judge, Refuse

_SHOWN = 500
DENIED = "The session's policy denies this call, and it was not run. Do not repeat it; find another way."


@dataclass(frozen=True)
class Judging:
    """Judges calls by the tools that there are, the policy of their session and what was called before."""

    config: ChatConfig

    def of_tool(self, turn: int, call: Call, specs: Mapping[str, ToolSpec]) -> Judge:
        """For calls that we run."""

        def decide(session: Session, repeats: int, now: datetime) -> Allow | Ask | Refuse:
            spec = specs.get(call.name)
            if spec is None:
                return Refuse(refusal(_unknown(call.name, specs)))
            wrong = self._wrong(call, spec, repeats)
            if wrong is not None:
                return Refuse(refusal(wrong))
            subject = Subject(spec.name, spec.tool, spec.kind, spec.effect, call.arguments)
            action = judge(session.policy, subject)
            if action is Action.DENY:
                return Refuse(refusal(DENIED))
            if action is Action.ALLOW and not spec.client:
                return Allow()
            fields = question_fields(call.arguments) if is_question(spec) else {}
            fields = client_call_fields(call) if spec.client else fields
            seconds = self.config.approval_time
            return Ask(new_approval(session, turn, call, spec.kind, now, seconds, **fields), spec.input_schema)

        return decide

    def of_other(
        self, turn: int, call: Call, kind: str | None, effect: str, question: str, choices: Sequence[Choice]
    ) -> Judge:
        """For calls that an agent program carries out itself."""

        def decide(session: Session, repeats: int, now: datetime) -> Allow | Ask | Refuse:
            action = judge(session.policy, Subject(call.name, call.name, kind, effect, call.arguments))
            if action is not Action.ASK:
                return Allow() if action is Action.ALLOW else Refuse(refusal(DENIED))
            # It runs what it has asked for, so there is no other way to say yes or no.
            fields = {"question": question, "choices": tuple(choices), "actions": ("approve", "reject")}
            return Ask(new_approval(session, turn, call, kind, now, self.config.approval_time, **fields))

        return decide

    def _wrong(self, call: Call, spec: ToolSpec, repeats: int) -> str | None:
        """What the model is told if it has to call again, or otherwise."""
        if call.malformed is not None:
            return (
                f"The arguments of {call.name} were not a JSON object, so it was not run. You wrote: "
                f"{_short(call.malformed)}\nCall it again with one JSON object."
            )
        wrong = problems(spec.input_schema, dict(call.arguments))
        if wrong:
            listed = "\n".join(f"- {each}" for each in wrong)
            return (
                f"The arguments do not fit {call.name}, so it was not run:\n{listed}\nCorrect them and call it again."
            )
        if repeats >= self.config.repeats:
            return (
                f"You have made this very call {repeats} times in a row, so it was not run again. Its results are "
                "above. Do something else, or ask the user how to go on."
            )
        return None


def _unknown(name: str, specs: Mapping[str, ToolSpec]) -> str:
    close = get_close_matches(name, [*specs], n=3, cutoff=0.5)
    close += [each for each, spec in specs.items() if spec.tool == name and each not in close]
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"There is no tool {_short(name)}.{meant} list_tools says which there are."


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
