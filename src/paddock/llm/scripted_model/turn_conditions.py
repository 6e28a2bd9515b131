"""Evaluate the conditions of a script's turns within a bounded number of steps."""

from __future__ import annotations

from typing import NamedTuple, Self

from paddock.errors import InvalidInput
from paddock.llm.scripted_model.conversation_parsing import (
    MAX_SEARCHED_CHARACTERS,
    ScriptAnswerContext,
    ScriptedConversation,
)
from paddock.llm.scripted_model.script_schema import ModelScript, ScriptTurn, ScriptTurnCondition
from paddock.llm.scripted_model.search_cost import StepBoundedPattern
from paddock.llm.scripted_model.tool_matching import find_offered_tool_name

MAX_STEPS_IN_PROCESS = 5_000_000
"""Steps of searches that the server process does itself for one request: some 15 ms."""
_MATCH_STEPS = 200
"""Steps that looking at a condition counts as."""
_COMPILE_STEPS = 2000
"""Steps that compiling one character of a pattern counts as."""
_NAME_PATTERN_STEPS = 20_000
"""Steps that compiling the pattern of a tool's name counts as."""


class ScriptSearchTooLong(InvalidInput):
    """The conditions of the script take too long in this conversation; use simpler patterns."""


class TurnConditionTerms(NamedTuple):
    """The terms of a `ScriptTurnCondition`, quick to send to a worker process."""

    model: str | None
    system: str | None
    last: str | None
    tool: str | None
    prompt: str | None
    offers: str | None

    @classmethod
    def from_condition(cls, when: ScriptTurnCondition | None) -> Self | None:
        if when is None:
            return None
        return cls(when.model, when.system, when.last, when.tool, when.prompt, when.offers)


class ScriptConditions(NamedTuple):
    """The parts of a script that decide which turn answers."""

    rules: tuple[TurnConditionTerms | None, ...]
    turns: tuple[TurnConditionTerms | None, ...]
    gives_answer: tuple[bool, ...]
    """Whether each of `turns` gives an answer."""
    each_prompt: bool
    needs_tools: bool
    """Whether a turn needs a tool of the client."""

    @classmethod
    def from_script(cls, script: ModelScript) -> Self:
        def terms(turns: tuple[ScriptTurn, ...]) -> tuple[TurnConditionTerms | None, ...]:
            return tuple(TurnConditionTerms.from_condition(turn.when) for turn in turns)

        answers = tuple(turn.gives_answer for turn in script.turns)
        return cls(terms(script.rules), terms(script.turns), answers, script.each_prompt, script.needs_tools)


class ScriptedConversationFacts(NamedTuple):
    """The parts of a conversation that conditions refer to."""

    model: str
    system: str
    tools: tuple[str, ...]
    """Names of the tools that the client offers."""
    contexts: tuple[ScriptAnswerContext, ...]

    @classmethod
    def from_conversation(cls, conversation: ScriptedConversation) -> Self:
        request = conversation.request
        names = tuple(tool.name for tool in request.tools)
        return cls(request.model, conversation.system, names, tuple(conversation.contexts))


class TurnConditionMatcher:
    """Evaluates conditions for one request, each search only once. Patterns stay compiled for the next request."""

    def __init__(
        self,
        facts: ScriptedConversationFacts,
        patterns: dict[str, StepBoundedPattern],
        max_steps: int = MAX_STEPS_IN_PROCESS,
    ) -> None:
        self._facts = facts
        self._patterns = patterns
        self._steps_left = max_steps
        self._groups: dict[tuple[str, int], dict[str, str] | None] = {}
        """Groups by pattern and identity of the text."""
        self._offered: dict[str, bool] = {}

    def match(self, when: TurnConditionTerms | None, context: ScriptAnswerContext) -> dict[str, str] | None:
        """Return the matched groups if all terms hold, else `None`. Raises `ScriptSearchTooLong`."""
        self._spend(_MATCH_STEPS)
        groups: dict[str, str] = {}
        if when is None:
            return groups
        for pattern, text in (
            (when.model, self._facts.model),
            (when.system, self._facts.system),
            (when.last, context.last),
            (when.tool, context.tool_output),
            (when.prompt, context.prompt),
        ):
            if pattern is not None:
                found = self._search(pattern, text)
                if found is None:
                    return None
                groups |= found
        if when.offers is not None and not self._is_offered(when.offers):
            return None
        return groups

    def _search(self, pattern: str, text: str) -> dict[str, str] | None:
        key = (pattern, id(text))
        if key not in self._groups:
            bounded = self._patterns.get(pattern)
            if bounded is None:
                self._spend(_COMPILE_STEPS * len(pattern))
                bounded = self._patterns[pattern] = StepBoundedPattern(pattern)
            self._spend(bounded.most_steps(min(len(text), MAX_SEARCHED_CHARACTERS)))
            self._groups[key] = _find_groups(bounded, text[:MAX_SEARCHED_CHARACTERS])
        return self._groups[key]

    def _is_offered(self, pattern: str) -> bool:
        if pattern not in self._offered:
            wildcards = pattern.count("*")
            self._spend((_NAME_PATTERN_STEPS if wildcards else 0) + (1 + wildcards) * sum(map(len, self._facts.tools)))
            self._offered[pattern] = find_offered_tool_name(self._facts.tools, pattern) is not None
        return self._offered[pattern]

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise ScriptSearchTooLong


def _find_groups(pattern: StepBoundedPattern, text: str) -> dict[str, str] | None:
    found = pattern.compiled.search(text)
    if found is None:
        return None
    groups = {"match": found.group()}
    groups |= {f"match.{number}": text or "" for number, text in enumerate(found.groups(), 1)}
    return groups | {f"match.{name}": text or "" for name, text in found.groupdict().items()}
