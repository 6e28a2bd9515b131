"""Export conversations as JSON lines, for training, evaluation and other tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Literal, TypeAlias

from pydantic.alias_generators import to_camel

from paddock.config.llm import ArchiveConfig
from paddock.errors import NotFound, PaddockError
from paddock.llm.archive.conversation_messages import (
    ConversationSources,
    load_conversation_messages,
    read_conversation_sources,
)
from paddock.llm.archive.conversation_threads import ConversationThread, group_exchanges_into_conversations
from paddock.llm.archive.secret_redaction import SecretRedactor
from paddock.llm.formats.neutral import MessagePart, MessageRole, ModelMessage, ModelRequest, ModelThinking
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, CHAT_FAMILY, is_foreign_signature
from paddock.model.exchanges import ExchangeFilters
from paddock.store.model_exchanges.exchange_store import ExchangeStore

ExportForm = Literal["openai", "anthropic"]
RunEncoder: TypeAlias = Callable[..., Awaitable[Sequence[bytes]]]
EXCHANGES_AT_ONCE = 2000
"""Exchanges of one sandbox or key that are joined at a time; longer conversations are exported in parts."""
_FORMATS = {"openai": "openai-chat", "anthropic": "anthropic"}
_FAMILIES = {"openai": CHAT_FAMILY, "anthropic": ANTHROPIC_FAMILY}
_FIELDS = ("system", "messages", "tools")


async def export_conversation_lines(
    exchanges: ExchangeStore,
    tenant: str,
    filters: ExchangeFilters,
    match: str | None,
    form: ExportForm,
    run: RunEncoder,
    *,
    secrets: tuple[str, ...] = (),
    unanswered: bool = False,
) -> AsyncIterator[bytes]:
    """Yield one line per conversation, in order of their start; unanswered ones only if requested. Long ones in pieces.

    `run` runs a function that writes so many bytes. `secrets` are masked: older exchanges may contain them.
    """
    # A group is loaded only after all earlier conversations are exported, because there may be many.
    unread_groups: list[tuple[str, int, str | None, str, str | None]] = [
        (first, group_index, sandbox, key, None)
        for group_index, (first, sandbox, key) in enumerate(
            await exchanges.list_sandboxes_and_keys(tenant, filters, match)
        )
    ]
    ready_threads: list[tuple[str, int, ConversationThread, Mapping[str, ConversationThread]]] = []
    while unread_groups or ready_threads:
        if unread_groups and (not ready_threads or unread_groups[0][0] <= ready_threads[0][0]):
            _, group_index, sandbox, key, after = heappop(unread_groups)
            group = replace(filters, sandbox=sandbox, key=key)
            tree = await exchanges.read_turn_tree(tenant, group, match=match, after=after, limit=EXCHANGES_AT_ONCE)
            # For a key outside sandboxes the tree includes the exchanges of its sandboxes: filter them out.
            positions = [each for each in tree.positions if each.summary.sandbox == sandbox]
            found = await asyncio.to_thread(group_exchanges_into_conversations, replace(tree, positions=positions))
            known = {thread.id: thread for thread in found}
            for thread in found:
                heappush(ready_threads, (thread.id, group_index, thread, known))
            if len(tree.positions) == EXCHANGES_AT_ONCE:
                last = tree.positions[-1].summary.id
                heappush(unread_groups, (last, group_index, sandbox, key, last))
            continue
        _, _, thread, threads = heappop(ready_threads)
        if not thread.turns and not unanswered:
            continue
        try:
            sources = await read_conversation_sources(exchanges, tenant, thread, threads)
        except NotFound:
            continue  # Deleted in the meantime.
        line = await run(sources.size, write_conversation_line, thread, sources, form, unanswered, secrets)
        for piece in line:
            yield piece
        thread.messages = []


def write_conversation_line(
    thread: ConversationThread,
    sources: ConversationSources,
    form: ExportForm,
    unanswered: bool,
    secrets: tuple[str, ...] = (),
) -> bytes:
    """Return a conversation as a line of JSON; nothing for an unanswered one, unless requested."""
    load_conversation_messages(thread, sources)
    if thread.messages and not unanswered and all(each.role is not MessageRole.ASSISTANT for each in thread.messages):
        return b""
    first = thread.exchanges[0]
    document: dict[str, Any] = {
        "id": thread.id,
        "kind": thread.kind,
        "at": datetime.fromtimestamp(first.at, UTC).isoformat().replace("+00:00", "Z"),
        "sandbox": first.sandbox,
        "run": first.run,
        "session": first.session,
        "user": first.user,
        "conversation": thread.conversation,
        "models": thread.models,
        **exported_conversation_body(thread, form),
        "exchanges": [each.id for each in thread.exchanges],
        "usage": {to_camel(name): value for name, value in asdict(thread.usage).items()},
        "estimated": thread.estimated,
        "cost": thread.cost,
    }
    if thread.notes:
        document["notes"] = thread.notes
    text = json.dumps({name: value for name, value in document.items() if value is not None}, ensure_ascii=False)
    return _redactor(secrets).redact_json(text.encode(errors="replace")) + b"\n"


@lru_cache(maxsize=1)
def _redactor(secrets: tuple[str, ...]) -> SecretRedactor:
    return SecretRedactor(ArchiveConfig(redact_keys=False), secrets)


def exported_conversation_body(thread: ConversationThread, form: ExportForm) -> dict[str, Any]:
    """Return the messages, and system prompt and tools if the form has separate fields for them."""
    messages = [
        ModelMessage(each.role, [_exportable_part(part, form) for part in each.parts]) for each in thread.messages
    ]
    thought = any(isinstance(part, ModelThinking) for each in messages for part in each.parts)
    # OpenAI's own models accept no thoughts, but an export should contain them.
    model = "" if thought else thread.exchanges[-1].model
    request = ModelRequest(model=model, messages=messages, tools=thread.tools, max_tokens=1)
    if not thread.messages:
        return {"messages": []}
    try:
        body: dict[str, Any] = json.loads(FORMATS[_FORMATS[form]].write_request(request))
    except PaddockError as error:
        thread.notes.append(f"cannot be exported in this form: {error.message}")
        return {"messages": []}
    thread.notes += [note for note in request.notes if note not in thread.notes]
    return {name: body[name] for name in _FIELDS if name in body}


def _exportable_part(part: MessagePart, form: ExportForm) -> MessagePart:
    """Return a part for the export: thoughts without their signature, which only matters to models."""
    if not isinstance(part, ModelThinking) or part.redacted is not None or not part.text:
        return part
    if part.signature and not is_foreign_signature(part.signature, _FAMILIES[form]):
        return part
    return ModelThinking(part.text, "" if form == "anthropic" else None)
