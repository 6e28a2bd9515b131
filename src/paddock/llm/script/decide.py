"""Which turn of a scenario answers a request.

That follows from the conversation in the request alone: the answers already in it are gone through from the start, and
for each the turn that gave it is found again. So a scenario serves any number of conversations at once, and a request
that is sent again gets the same answer again. Only how often a turn made trouble is remembered.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field

from paddock.llm.neutral import Request
from paddock.llm.script.conversation import LOOKED_AT, Conversation, Moment
from paddock.llm.script.scenario import Action, Drop, Fail, Scenario, Stall, Trouble, Turn, When
from paddock.llm.script.tools import find

_REMEMBERED = 10_000


@dataclass(slots=True)
class Decision:
    actions: tuple[Action, ...]
    """What to do, the troubles of earlier attempts left out."""
    words: dict[str, str] = field(default_factory=dict)
    """What templates may take."""
    place: str = ""
    """Which turn it is, for people."""


class Attempts:
    """How often each conversation met trouble at the point where it stands; the longest unasked are forgotten."""

    def __init__(self, most: int = _REMEMBERED) -> None:
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


def is_side_call(scenario: Scenario, request: Request) -> bool:
    """Whether a request is beside the conversation: a probe, or one for a title, which brings no tools."""
    return request.max_tokens == 1 or (scenario.needs_tools and not request.tools)


def decide(scenario: Scenario, conversation: Conversation, attempts: Attempts, key: str) -> Decision | None:
    """What to answer; `None` for a side call that no rule is for."""
    rule = _rule(scenario, conversation, conversation.now)
    if rule is not None:
        index, turn, groups = rule
        return _decision(conversation, [turn], attempts, key, groups, f"rules.{index}")
    if is_side_call(scenario, conversation.request):
        return None
    chosen, groups, place = _turns(scenario, conversation)
    return _decision(conversation, chosen, attempts, key, groups, place)


def _turns(scenario: Scenario, conversation: Conversation) -> tuple[list[Turn], dict[str, str], str]:
    """The turn that is due, and before it those that only make trouble."""
    position = 0
    for moment in conversation.moments[:-1]:
        if scenario.each_prompt and moment.new_prompt:
            position = 0
        if _rule(scenario, conversation, moment) is None:
            position = _after(scenario, conversation, moment, position)
    moment = conversation.now
    if scenario.each_prompt and moment.new_prompt:
        position = 0
    troubles: list[Turn] = []
    for index in range(position, len(scenario.turns)):
        turn = scenario.turns[index]
        groups = holds(turn.when, conversation, moment)
        if groups is None:
            continue
        if turn.answers:
            return [*troubles, turn], groups, f"turns.{index}"
        troubles.append(turn)
    return [*troubles, scenario.otherwise], {}, "otherwise"


def _after(scenario: Scenario, conversation: Conversation, moment: Moment, position: int) -> int:
    """Where the turns go on after the answer that was given at a moment."""
    for index in range(position, len(scenario.turns)):
        turn = scenario.turns[index]
        if turn.answers and holds(turn.when, conversation, moment) is not None:
            return index + 1
    return len(scenario.turns)


def _rule(scenario: Scenario, conversation: Conversation, moment: Moment) -> tuple[int, Turn, dict[str, str]] | None:
    for index, rule in enumerate(scenario.rules):
        groups = holds(rule.when, conversation, moment)
        if groups is not None:
            return index, rule, groups
    return None


def holds(when: When | None, conversation: Conversation, moment: Moment) -> dict[str, str] | None:
    """The groups of what was found when the conditions hold, else `None`."""
    groups: dict[str, str] = {}
    if when is None:
        return groups
    for pattern, text in (
        (when.model, conversation.request.model),
        (when.system, conversation.system),
        (when.last, moment.last),
        (when.tool, moment.tool_output),
        (when.prompt, moment.prompt),
    ):
        if pattern is None:
            continue
        found = re.search(pattern, text[:LOOKED_AT])
        if found is None:
            return None
        groups["match"] = found.group()
        groups |= {f"match.{number}": text or "" for number, text in enumerate(found.groups(), 1)}
        groups |= {f"match.{name}": text or "" for name, text in found.groupdict().items()}
    if when.offers is not None and find(conversation.request.tools, when.offers) is None:
        return None
    return groups


def _decision(
    conversation: Conversation, turns: list[Turn], attempts: Attempts, key: str, groups: dict[str, str], place: str
) -> Decision:
    actions = [action for turn in turns for action in turn.actions]
    kept, troubled = _with_trouble(actions, attempts.count(key))
    if troubled:
        attempts.add(key)
    else:
        # So the next run of the same conversation meets the same trouble.
        attempts.forget(key)
    now = conversation.now
    words = {
        "prompt": now.prompt,
        "last.text": now.last,
        "tool.output": now.tool_output,
        "tool.name": now.tool_name,
        "model": conversation.request.model,
        "directory": conversation.directory,
        **groups,
    }
    return Decision(kept, words, place)


def _with_trouble(actions: list[Action], attempt: int) -> tuple[tuple[Action, ...], bool]:
    """The actions of this attempt: of the troubles that pass, at most the one whose turn it is."""
    due: Trouble | None = None
    for action in actions:
        if not isinstance(action, Fail | Stall | Drop) or due is not None:
            continue
        if action.times == "always":
            if not isinstance(action, Stall):
                due = action
        elif attempt < action.times:
            due = action
        else:
            attempt -= action.times
    kept = tuple(
        action
        for action in actions
        if not isinstance(action, Fail | Stall | Drop)
        or action is due
        or (isinstance(action, Stall) and action.times == "always")
    )
    return kept, due is not None
