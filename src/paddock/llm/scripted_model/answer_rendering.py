"""Render the actions of a turn as an answer: parts, events, pauses and connection breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelFailure,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.scripted_model import tool_matching
from paddock.llm.scripted_model.conversation_parsing import ScriptedConversation
from paddock.llm.scripted_model.script_schema import (
    CallToolAction,
    DropConnectionAction,
    FailAction,
    FinishReasonAction,
    ReadFileAction,
    RefuseAction,
    SayAction,
    ScriptAction,
    ShellAction,
    StallAction,
    ThinkAction,
    UsageAction,
    WriteFileAction,
)
from paddock.llm.scripted_model.text_template import ScriptTemplateFiller
from paddock.llm.scripted_model.turn_selection import ScriptTurnDecision

_WORD = re.compile(r"\s*\S{1,40}\s*|\s+")
_WORDS_PER_PIECE = 4
_MAX_PIECES = 10_000
"""Approximate number of pieces of the longest texts: each is an event to write, count and archive."""


@dataclass(frozen=True, slots=True)
class RenderedPause:
    seconds: float


@dataclass(frozen=True, slots=True)
class RenderedConnectionBreak:
    """The connection breaks here."""


RenderedItem: TypeAlias = MessagePart | RenderedPause | RenderedConnectionBreak | ModelFailure


@dataclass(slots=True)
class RenderedAnswer:
    """An answer that may pause, break off or fail at any position."""

    items: list[RenderedItem]
    finish: FinishReason
    usage: TokenUsage
    retry_after: float | None = None
    pace: float = 0
    id: str = ""
    model: str = ""

    def answer(self) -> ModelAnswer:
        """Return the complete answer, without pauses."""
        parts: list[MessagePart] = []
        for item in self.items:
            if isinstance(item, RenderedPause | RenderedConnectionBreak | ModelFailure):
                continue
            if isinstance(item, ModelText) and parts and isinstance(parts[-1], ModelText):
                parts[-1] = ModelText(parts[-1].text + item.text)
            else:
                parts.append(item)
        return ModelAnswer(self.id, self.model, parts, self.finish, usage=self.usage)

    def events(self) -> Iterator[StreamEvent | RenderedPause | RenderedConnectionBreak]:
        """Iterate over the stream events of the answer, with its pauses and breaks."""
        # The usage of the prompt, including cached tokens, is known from the start.
        yield AnswerStreamStarted(self.id, self.model, replace(self.usage, output=0, reasoning=0))
        index = -1
        text_is_open = False
        for item in self.items:
            if isinstance(item, RenderedPause):
                yield item
                continue
            if isinstance(item, RenderedConnectionBreak):
                yield item
                return
            if isinstance(item, ModelFailure):
                yield AnswerStreamFailed(item)
                return
            if text_is_open and not isinstance(item, ModelText):
                yield AnswerPartEnded(index)
                text_is_open = False
            if not text_is_open:
                index += 1
                yield AnswerPartStarted(index, _empty_part(item))
            for number, piece in enumerate(_iter_pieces(item)):
                if number and self.pace and not isinstance(item, ModelToolCall):
                    yield RenderedPause(self.pace)
                yield AnswerPartDelta(index, piece)
            text_is_open = isinstance(item, ModelText)
            if not text_is_open:
                yield AnswerPartEnded(index)
        if text_is_open:
            yield AnswerPartEnded(index)
        yield AnswerStreamFinished(self.finish, self.usage)


def render_scripted_answer(
    conversation: ScriptedConversation, decision: ScriptTurnDecision, pace: float = 0
) -> RenderedAnswer:
    """Render a decision for the client. Raises `NoMatchingTool` if it offers no tool for an action."""
    items: list[RenderedItem] = []
    filler = ScriptTemplateFiller(decision.template_values)
    finish: FinishReason | None = None
    usage: TokenUsage | None = None
    retry_after: float | None = None
    id_prefix = f"script-{conversation.digest[:16]}"
    for action in decision.actions:
        match action:
            case FinishReasonAction():
                finish = action.reason
            case UsageAction():
                usage = TokenUsage(action.input, action.output, action.cache_read, action.cache_write, action.reasoning)
            case FailAction():
                retry_after = action.retry_after
                items.append(
                    ModelFailure(
                        action.status,
                        filler.fill(action.message),
                        error_kind_for_status(action.status),
                    )
                )
            case StallAction():
                items.append(RenderedPause(action.seconds))
            case DropConnectionAction():
                items.append(RenderedConnectionBreak())
            case RefuseAction():
                items.append(ModelRefusal(filler.fill(action.text)))
                finish = finish or FinishReason.REFUSAL
            case SayAction():
                items.append(ModelText(filler.fill(action.text)))
            case ThinkAction():
                items.append(ModelThinking(filler.fill(action.text)))
            case _:
                use = _match_tool(action, conversation, filler)
                calls = sum(isinstance(item, ModelToolCall) for item in items)
                items.append(
                    ModelToolCall(f"{id_prefix}-{calls}", use.tool, json.dumps(use.arguments, ensure_ascii=False))
                )
                finish = finish or FinishReason.TOOLS
    rendering = RenderedAnswer(items, finish or FinishReason.STOP, TokenUsage(), retry_after, pace)
    rendering.id = id_prefix
    rendering.model = conversation.request.model
    rendering.usage = usage or estimate_scripted_usage(conversation, rendering.answer().parts)
    return rendering


def _match_tool(
    action: ScriptAction, conversation: ScriptedConversation, filler: ScriptTemplateFiller
) -> tool_matching.MatchedToolCall:
    offered = conversation.request.tools
    match action:
        case ShellAction():
            return tool_matching.match_shell_tool(offered, filler.fill(action.command), filler.fill(action.description))
        case WriteFileAction():
            path, content = filler.fill(action.path), filler.fill(action.content)
            return tool_matching.match_write_tool(offered, path, content, conversation.directory)
        case ReadFileAction():
            return tool_matching.match_read_tool(offered, filler.fill(action.path), conversation.directory)
        case CallToolAction():
            arguments: dict[str, Any] = filler.fill_all(action.arguments)
            return tool_matching.match_named_tool(offered, action.tool, arguments)
    raise AssertionError(f"no way to render {type(action).__name__}")


def estimate_scripted_usage(conversation: ScriptedConversation, parts: list[MessagePart]) -> TokenUsage:
    """Estimate usage as one token per four characters; deterministic for a conversation."""
    prompt_length = sum(len(part) for part in conversation_texts(conversation))
    thought = sum(len(part.text) for part in parts if isinstance(part, ModelThinking))
    text_length = sum(len(part.text) for part in parts if isinstance(part, ModelText | ModelRefusal))
    called = sum(len(part.name) + len(part.arguments) for part in parts if isinstance(part, ModelToolCall))
    return TokenUsage(
        input=_tokens_of_length(prompt_length),
        output=_tokens_of_length(thought + text_length + called),
        reasoning=_tokens_of_length(thought, least=0),
    )


def conversation_texts(conversation: ScriptedConversation) -> Iterator[str]:
    for message in conversation.request.messages:
        for part in message.parts:
            if isinstance(part, ModelText | ModelThinking | ModelRefusal):
                yield part.text
            elif isinstance(part, ModelToolCall):
                yield part.arguments
            elif isinstance(part, ModelToolResult):
                yield from (piece.text for piece in part.content if isinstance(piece, ModelText))


def _tokens_of_length(characters: int, *, least: int = 1) -> int:
    return max(least, (characters + 3) // 4)


def _empty_part(item: MessagePart) -> MessagePart:
    if isinstance(item, ModelToolCall):
        return replace(item, arguments="")
    return type(item)("") if isinstance(item, ModelText | ModelRefusal) else ModelThinking()


def _iter_pieces(item: MessagePart) -> Iterator[str]:
    """Split a text into pieces of a few words, and the arguments of a call into two pieces."""
    if isinstance(item, ModelToolCall):
        middle = len(item.arguments) // 2
        yield from (piece for piece in (item.arguments[:middle], item.arguments[middle:]) if piece)
    elif isinstance(item, ModelText | ModelThinking | ModelRefusal):
        words = (found.group() for found in _WORD.finditer(item.text))
        at_once = max(_WORDS_PER_PIECE, len(item.text) // _MAX_PIECES)
        while piece := "".join(islice(words, at_once)):
            yield piece
