"""Archived exchanges and conversations as JSON, in a form that does not depend on the format of the client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic.alias_generators import to_camel

from paddock.llm.archive.conversation_messages import ConversationSources, load_conversation_messages
from paddock.llm.archive.conversation_threads import ConversationThread
from paddock.llm.archive.exchange_encoding import decode_archived_exchange
from paddock.llm.archive.exchange_parsing import parse_archived_answer, parse_archived_request
from paddock.llm.formats.neutral import (
    MessagePart,
    ModelAnswer,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
)
from paddock.model.exchanges import StoredExchange

_PART_TYPES: Mapping[type[Any], str] = {
    ModelText: "text",
    ModelMedia: "media",
    ModelThinking: "thinking",
    ModelToolCall: "toolCall",
    ModelToolResult: "toolResult",
    ModelRefusal: "refusal",
}


def exchange_content_json(stored: StoredExchange) -> bytes:
    """Return the fields of an exchange that are in its request and its response, as a JSON object."""
    exchange = decode_archived_exchange(stored)
    document: dict[str, Any] = {}
    request, answer = parse_archived_request(exchange), parse_archived_answer(exchange)
    if isinstance(request, ModelRequest):
        document["messages"] = [_message_document(message) for message in request.messages]
        document["tools"] = [tool.name for tool in request.tools]
    if isinstance(answer, ModelAnswer):
        document["answer"] = {
            "id": answer.id,
            "model": answer.model,
            "parts": [_part_document(part) for part in answer.parts],
            "finish": answer.finish,
            "notes": answer.notes,
        }
    document["pieces"] = [(moment, len(piece)) for moment, piece in exchange.response]
    return _to_json(document)


def conversation_content_json(thread: ConversationThread, sources: ConversationSources) -> bytes:
    """Return the messages of a conversation and the notes on them, as a JSON object."""
    load_conversation_messages(thread, sources)
    return _to_json({"messages": [_message_document(message) for message in thread.messages], "notes": thread.notes})


def _message_document(message: ModelMessage) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part_document(part) for part in message.parts]}


def _part_document(part: MessagePart) -> dict[str, Any]:
    values = {to_camel(name): value for name, value in asdict(part).items() if value is not None and value is not False}
    if isinstance(part, ModelToolResult):
        values["content"] = [_part_document(each) for each in part.content]
    return {"type": _PART_TYPES[type(part)], **values}


def _to_json(document: Any) -> bytes:
    """Serialise any request's content, including lone surrogates; non-finite numbers become null."""
    try:
        text = json.dumps(document, allow_nan=False)
    except ValueError:
        text = json.dumps(json.loads(json.dumps(document), parse_constant=lambda _: None))
    return text.encode()
