"""Select the turn of a script that answers a request.

The selection depends only on the conversation in the request: its answers are replayed from the start, and for each
one the turn that gave it is found again. So a script serves any number of conversations at once, and a repeated
request gets the same answer. Only the number of injected faults is remembered.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field

from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.scripted_model.conversation import MAX_SEARCHED_CHARACTERS, AnswerContext, ScriptedConversation
from paddock.llm.scripted_model.script_schema import (
    DropConnectionAction,
    FailAction,
    FaultAction,
    ModelScript,
    ScriptAction,
    ScriptTurn,
    StallAction,
    TurnCondition,
)
from paddock.llm.scripted_model.tool_matching import find_tool

_MAX_CONVERSATIONS = 10_000


@dataclass(slots=True)
class TurnDecision:
    actions: tuple[ScriptAction, ...]
    """Actions to perform, without faults that earlier attempts have used up."""
    template_values: dict[str, str] = field(default_factory=dict)
    """Values of template placeholders."""
    turn_path: str = ""
    """Path of the turn in the script, such as `turns.2`."""


class FaultAttempts:
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


def is_side_call(script: ModelScript, request: ModelRequest) -> bool:
    """Return whether a request is outside the conversation: a probe, or a request without tools."""
    return request.max_tokens == 1 or (script.needs_tools and not request.tools)


def select_turn(
    script: ModelScript, conversation: ScriptedConversation, attempts: FaultAttempts, key: str
) -> TurnDecision | None:
    """Select the turn that answers a request; `None` for a side call without a matching rule."""
    rule = _matching_rule(script, conversation, conversation.current)
    if rule is not None:
        index, turn, groups = rule
        return _make_decision(conversation, [turn], attempts, key, groups, f"rules.{index}")
    if is_side_call(script, conversation.request):
        return None
    chosen, groups, place = _due_turns(script, conversation)
    return _make_decision(conversation, chosen, attempts, key, groups, place)


def _due_turns(script: ModelScript, conversation: ScriptedConversation) -> tuple[list[ScriptTurn], dict[str, str], str]:
    """Return the turn that is due, preceded by turns that only inject faults."""
    position = 0
    for context in conversation.contexts[:-1]:
        if script.each_prompt and context.new_prompt:
            position = 0
        if _matching_rule(script, conversation, context) is None:
            position = _position_after(script, conversation, context, position)
    context = conversation.current
    if script.each_prompt and context.new_prompt:
        position = 0
    faults: list[ScriptTurn] = []
    for index in range(position, len(script.turns)):
        turn = script.turns[index]
        groups = match_condition(turn.when, conversation, context)
        if groups is None:
            continue
        if turn.gives_answer:
            return [*faults, turn], groups, f"turns.{index}"
        faults.append(turn)
    return [*faults, script.otherwise], {}, "otherwise"


def _position_after(
    script: ModelScript, conversation: ScriptedConversation, context: AnswerContext, position: int
) -> int:
    """Return the position of the next turn after the answer given in a context."""
    for index in range(position, len(script.turns)):
        turn = script.turns[index]
        if turn.gives_answer and match_condition(turn.when, conversation, context) is not None:
            return index + 1
    return len(script.turns)


def _matching_rule(
    script: ModelScript, conversation: ScriptedConversation, context: AnswerContext
) -> tuple[int, ScriptTurn, dict[str, str]] | None:
    for index, rule in enumerate(script.rules):
        groups = match_condition(rule.when, conversation, context)
        if groups is not None:
            return index, rule, groups
    return None


def match_condition(
    when: TurnCondition | None, conversation: ScriptedConversation, context: AnswerContext
) -> dict[str, str] | None:
    """Return the matched groups if all conditions hold, else `None`."""
    groups: dict[str, str] = {}
    if when is None:
        return groups
    for pattern, text in (
        (when.model, conversation.request.model),
        (when.system, conversation.system),
        (when.last, context.last),
        (when.tool, context.tool_output),
        (when.prompt, context.prompt),
    ):
        if pattern is None:
            continue
        found = re.search(pattern, text[:MAX_SEARCHED_CHARACTERS])
        if found is None:
            return None
        groups["match"] = found.group()
        groups |= {f"match.{number}": text or "" for number, text in enumerate(found.groups(), 1)}
        groups |= {f"match.{name}": text or "" for name, text in found.groupdict().items()}
    if when.offers is not None and find_tool(conversation.request.tools, when.offers) is None:
        return None
    return groups


def _make_decision(
    conversation: ScriptedConversation,
    turns: list[ScriptTurn],
    attempts: FaultAttempts,
    key: str,
    groups: dict[str, str],
    place: str,
) -> TurnDecision:
    actions = [action for turn in turns for action in turn.actions]
    kept, has_fault = _apply_faults(actions, attempts.count(key))
    if has_fault:
        attempts.add(key)
    else:
        # The next run of the same conversation meets the same faults again.
        attempts.forget(key)
    now = conversation.current
    words = {
        "prompt": now.prompt,
        "last.text": now.last,
        "tool.output": now.tool_output,
        "tool.name": now.tool_name,
        "model": conversation.request.model,
        "directory": conversation.directory,
        **groups,
    }
    return TurnDecision(kept, words, place)


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
    kept = tuple(
        action
        for action in actions
        if not isinstance(action, FailAction | StallAction | DropConnectionAction)
        or action is due
        or (isinstance(action, StallAction) and action.times == "always")
    )
    return kept, due is not None
