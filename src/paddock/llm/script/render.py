"""The actions of a turn as an answer in the words of a client: parts, events, pauses and breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from paddock.llm.formats.failures import kind_of
from paddock.llm.neutral import (
    Answer,
    Delta,
    Event,
    Failed,
    Failure,
    Finish,
    Finished,
    Part,
    PartEnded,
    PartStarted,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from paddock.llm.script import tools
from paddock.llm.script.conversation import Conversation
from paddock.llm.script.decide import Decision
from paddock.llm.script.scenario import (
    Action,
    Call,
    Drop,
    Ends,
    Fail,
    ReadFile,
    Refuse,
    Say,
    Shell,
    Stall,
    Think,
    Uses,
    WriteFile,
)
from paddock.llm.script.template import fill, fill_all

_PIECE = re.compile(r"\s*\S{1,40}\s*|\s+")
_WORDS_A_PIECE = 4


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """The connection ends here."""


Item: TypeAlias = Part | Pause | Break | Failure


@dataclass(slots=True)
class Rendering:
    """An answer that may be paused, broken off or failed at any place."""

    items: list[Item]
    finish: Finish
    usage: Usage
    retry_after: float | None = None
    pace: float = 0
    id: str = ""
    model: str = ""

    def answer(self) -> Answer:
        """The whole answer, without pauses."""
        parts: list[Part] = []
        for item in self.items:
            if isinstance(item, Pause | Break | Failure):
                continue
            if isinstance(item, Text) and parts and isinstance(parts[-1], Text):
                parts[-1] = Text(parts[-1].text + item.text)
            else:
                parts.append(item)
        return Answer(self.id, self.model, parts, self.finish, usage=self.usage)

    def events(self) -> Iterator[Event | Pause | Break]:
        """The answer as a stream tells it."""
        # What the prompt took is known from the start, what of it came from a cache included.
        yield Started(self.id, self.model, replace(self.usage, output=0, reasoning=0))
        index = -1
        text_is_open = False
        for item in self.items:
            if isinstance(item, Pause):
                yield item
                continue
            if isinstance(item, Break):
                yield item
                return
            if isinstance(item, Failure):
                yield Failed(item)
                return
            if text_is_open and not isinstance(item, Text):
                yield PartEnded(index)
                text_is_open = False
            if not text_is_open:
                index += 1
                yield PartStarted(index, _begun(item))
            for number, piece in enumerate(_pieces(item)):
                if number and self.pace and not isinstance(item, ToolCall):
                    yield Pause(self.pace)
                yield Delta(index, piece)
            text_is_open = isinstance(item, Text)
            if not text_is_open:
                yield PartEnded(index)
        if text_is_open:
            yield PartEnded(index)
        yield Finished(self.finish, self.usage)


def render(conversation: Conversation, decision: Decision, pace: float = 0) -> Rendering:
    """Say a decision in the words of the client. Raises `NoSuchTool` when it offers none that does an action."""
    items: list[Item] = []
    finish: Finish | None = None
    usage: Usage | None = None
    retry_after: float | None = None
    stem = f"script-{conversation.digest[:16]}"
    for action in decision.actions:
        match action:
            case Ends():
                finish = action.reason
            case Uses():
                usage = Usage(action.input, action.output, action.cache_read, action.cache_write, action.reasoning)
            case Fail():
                retry_after = action.retry_after
                items.append(Failure(action.status, fill(action.message, decision.words), kind_of(action.status)))
            case Stall():
                items.append(Pause(action.seconds))
            case Drop():
                items.append(Break())
            case Refuse():
                items.append(Refusal(fill(action.text, decision.words)))
                finish = finish or Finish.REFUSAL
            case Say():
                items.append(Text(fill(action.text, decision.words)))
            case Think():
                items.append(Thinking(fill(action.text, decision.words)))
            case _:
                use = _use(action, conversation, decision.words)
                calls = sum(isinstance(item, ToolCall) for item in items)
                items.append(ToolCall(f"{stem}-{calls}", use.tool, json.dumps(use.arguments, ensure_ascii=False)))
                finish = finish or Finish.TOOLS
    rendering = Rendering(items, finish or Finish.STOP, Usage(), retry_after, pace)
    rendering.id = stem
    rendering.model = conversation.request.model
    rendering.usage = usage or estimate(conversation, rendering.answer().parts)
    return rendering


def _use(action: Action, conversation: Conversation, words: dict[str, str]) -> tools.ToolUse:
    offered = conversation.request.tools
    match action:
        case Shell():
            return tools.shell(offered, fill(action.command, words), fill(action.description, words))
        case WriteFile():
            path, content = fill(action.path, words), fill(action.content, words)
            return tools.write_file(offered, path, content, conversation.directory)
        case ReadFile():
            return tools.read_file(offered, fill(action.path, words), conversation.directory)
        case Call():
            arguments: dict[str, Any] = fill_all(action.arguments, words)
            return tools.call(offered, action.tool, arguments)
    raise AssertionError(f"no way to render {type(action).__name__}")


def estimate(conversation: Conversation, parts: list[Part]) -> Usage:
    """Tokens counted as a quarter of the letters, always the same for the same conversation."""
    asked = sum(len(part) for part in conversation_texts(conversation))
    thought = sum(len(part.text) for part in parts if isinstance(part, Thinking))
    said = sum(len(part.text) for part in parts if isinstance(part, Text | Refusal))
    called = sum(len(part.name) + len(part.arguments) for part in parts if isinstance(part, ToolCall))
    return Usage(input=_tokens(asked), output=_tokens(thought + said + called), reasoning=_tokens(thought, least=0))


def conversation_texts(conversation: Conversation) -> Iterator[str]:
    for message in conversation.request.messages:
        for part in message.parts:
            if isinstance(part, Text | Thinking | Refusal):
                yield part.text
            elif isinstance(part, ToolCall):
                yield part.arguments
            elif isinstance(part, ToolResult):
                yield from (piece.text for piece in part.content if isinstance(piece, Text))


def _tokens(letters: int, *, least: int = 1) -> int:
    return max(least, (letters + 3) // 4)


def _begun(item: Part) -> Part:
    if isinstance(item, ToolCall):
        return replace(item, arguments="")
    return type(item)("") if isinstance(item, Text | Refusal) else Thinking()


def _pieces(item: Part) -> list[str]:
    """A text cut into a few words each, a call's arguments in two."""
    if isinstance(item, ToolCall):
        middle = len(item.arguments) // 2
        return [piece for piece in (item.arguments[:middle], item.arguments[middle:]) if piece]
    text = item.text if isinstance(item, Text | Thinking | Refusal) else ""
    words = _PIECE.findall(text)
    return ["".join(words[start : start + _WORDS_A_PIECE]) for start in range(0, len(words), _WORDS_A_PIECE)]
