"""Select the turn of a script that answers a request.

The selection depends only on the conversation in the request: its answers are replayed from the start, and for each
one the turn that gave it is found again. So a script serves any number of conversations at once, and a repeated
request gets the same answer. Only the number of injected faults is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.scripted_model.conversation_parsing import ScriptAnswerContext, ScriptedConversation
from paddock.llm.scripted_model.script_schema import (
    DropConnectionAction,
    FailAction,
    FaultAction,
    ModelScript,
    ScriptAction,
    ScriptTurn,
    StallAction,
)
from paddock.llm.scripted_model.turn_conditions import ScriptConditions, ScriptedConversationFacts, TurnConditionMatcher

_MAX_CONVERSATIONS = 10_000


@dataclass(slots=True)
class ScriptTurnDecision:
    actions: tuple[ScriptAction, ...]
    """Actions to perform, without faults that earlier attempts have used up."""
    template_values: dict[str, str] = field(default_factory=dict)
    """Values of template placeholders."""
    turn_path: str = ""
    """Path of the turn in the script, such as `turns.2`."""


class InjectedFaultCounter:
    """Counts injected faults per conversation state; the least recently used entries are evicted."""

    def __init__(self, most: int = _MAX_CONVERSATIONS) -> None:
        self._most = most
        self._counts: OrderedDict[str, int] = OrderedDict()

    def count(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str) -> None:
        self._counts[key] = self._counts.pop(key, 0) + 1
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def forget(self, key: str) -> None:
        self._counts.pop(key, None)


def is_side_call(conditions: ScriptConditions, request: ModelRequest) -> bool:
    """Return whether a request is outside the conversation: a probe, or a request without tools."""
    return request.max_tokens == 1 or (conditions.needs_tools and not request.tools)


@dataclass(slots=True)
class ScriptTurnChoice:
    """The turn that answers a request, before its faults are counted."""

    section: str
    """`rules`, `turns` or `otherwise`."""
    index: int = 0
    faults: tuple[int, ...] = ()
    """Turns before it that only inject faults."""
    groups: dict[str, str] = field(default_factory=dict)
    """Groups that its condition matched."""

    @property
    def path(self) -> str:
        return self.section if self.section == "otherwise" else f"{self.section}.{self.index}"


def choose_script_turn(
    conditions: ScriptConditions, facts: ScriptedConversationFacts, matcher: TurnConditionMatcher, *, side_call: bool
) -> ScriptTurnChoice | None:
    """Choose the turn that answers a request; `None` for a side call without a matching rule.

    Raises `ScriptSearchTooLong`.
    """
    rule = _matching_rule(conditions, matcher, facts.contexts[-1])
    if rule is not None or side_call:
        return rule
    return _due_turn(conditions, facts, matcher)


def make_turn_decision(
    script: ModelScript,
    conversation: ScriptedConversation,
    choice: ScriptTurnChoice,
    attempts: InjectedFaultCounter,
    key: str,
) -> ScriptTurnDecision:
    """Turn a choice into actions; counts the faults that they inject."""
    chosen = {"rules": script.rules, "turns": script.turns, "otherwise": (script.otherwise,)}[choice.section]
    turns = [*(script.turns[index] for index in choice.faults), chosen[choice.index]]
    return _make_decision(conversation, turns, attempts, key, choice.groups, choice.path)


def _due_turn(
    conditions: ScriptConditions, facts: ScriptedConversationFacts, matcher: TurnConditionMatcher
) -> ScriptTurnChoice:
    """Return the turn that is due, with the turns before it that only inject faults."""
    position = 0
    for context in facts.contexts[:-1]:
        if conditions.each_prompt and context.new_prompt:
            position = 0
        if _matching_rule(conditions, matcher, context) is None:
            position = _position_after(conditions, matcher, context, position)
    context = facts.contexts[-1]
    if conditions.each_prompt and context.new_prompt:
        position = 0
    faults: list[int] = []
    for index in range(position, len(conditions.turns)):
        groups = matcher.match(conditions.turns[index], context)
        if groups is None:
            continue
        if conditions.gives_answer[index]:
            return ScriptTurnChoice("turns", index, tuple(faults), groups)
        faults.append(index)
    return ScriptTurnChoice("otherwise", faults=tuple(faults))


def _position_after(
    conditions: ScriptConditions, matcher: TurnConditionMatcher, context: ScriptAnswerContext, position: int
) -> int:
    """Return the position of the next turn after the answer given in a context."""
    for index in range(position, len(conditions.turns)):
        if matcher.match(conditions.turns[index], context) is not None and conditions.gives_answer[index]:
            return index + 1
    return len(conditions.turns)


def _matching_rule(
    conditions: ScriptConditions, matcher: TurnConditionMatcher, context: ScriptAnswerContext
) -> ScriptTurnChoice | None:
    for index, when in enumerate(conditions.rules):
        groups = matcher.match(when, context)
        if groups is not None:
            return ScriptTurnChoice("rules", index, groups=groups)
    return None


def _make_decision(
    conversation: ScriptedConversation,
    turns: list[ScriptTurn],
    attempts: InjectedFaultCounter,
    key: str,
    groups: dict[str, str],
    turn_path: str,
) -> ScriptTurnDecision:
    actions = [action for turn in turns for action in turn.actions]
    attempted_actions, has_fault = _apply_faults(actions, attempts.count(key))
    if has_fault:
        attempts.add(key)
    else:
        # The next run of the same conversation meets the same faults again.
        attempts.forget(key)
    context = conversation.current
    template_values = {
        "prompt": context.prompt,
        "last.text": context.last,
        "tool.output": context.tool_output,
        "tool.name": context.tool_name,
        "model": conversation.request.model,
        "directory": conversation.directory,
        **groups,
    }
    return ScriptTurnDecision(attempted_actions, template_values, turn_path)


def _apply_faults(actions: list[ScriptAction], attempt: int) -> tuple[tuple[ScriptAction, ...], bool]:
    """Return the actions of this attempt with at most one temporary fault, and whether it has one."""
    due: FaultAction | None = None
    for action in actions:
        if not isinstance(action, FailAction | StallAction | DropConnectionAction) or due is not None:
            continue
        if action.times == "always":
            if not isinstance(action, StallAction):
                due = action
        elif attempt < action.times:
            due = action
        else:
            attempt -= action.times
    remaining_actions = tuple(
        action
        for action in actions
        if not isinstance(action, FailAction | StallAction | DropConnectionAction)
        or action is due
        or (isinstance(action, StallAction) and action.times == "always")
    )
    return remaining_actions, due is not None
