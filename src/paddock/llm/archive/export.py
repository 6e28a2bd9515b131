"""Conversations as lines of JSON, for training, evaluation and other tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any, Literal

from pydantic.alias_generators import to_camel

from paddock.errors import NotFound, PaddockError
from paddock.llm.archive.telling import tell_thread
from paddock.llm.archive.threads import Thread, find_threads
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.seals import ANTHROPIC, CHAT, foreign
from paddock.llm.neutral import Message, Part, Request, Role, Thinking
from paddock.model.exchanges import Filters
from paddock.store.exchanges import ExchangeStore

Form = Literal["openai", "anthropic"]
AT_ONCE = 2000
"""Exchanges of one sandbox or key that are joined at a time; a longer conversation comes in parts."""
_FORMATS = {"openai": "openai-chat", "anthropic": "anthropic"}
_FAMILIES = {"openai": CHAT, "anthropic": ANTHROPIC}
_FIELDS = ("system", "messages", "tools")


async def export(
    exchanges: ExchangeStore,
    tenant: str,
    filters: Filters,
    match: str | None,
    form: Form,
    *,
    unanswered: bool = False,
) -> AsyncIterator[bytes]:
    """One line for each conversation, in the order in which they began; those nobody answered only if asked for."""
    # A group is only looked at once all that began before it is out: there may be many.
    unread: list[tuple[str, int, str | None, str, str | None]] = [
        (first, place, sandbox, key, None)
        for place, (first, sandbox, key) in enumerate(await exchanges.groups(tenant, filters, match))
    ]
    ready: list[tuple[str, int, Thread, Mapping[str, Thread]]] = []
    while unread or ready:
        if unread and (not ready or unread[0][0] <= ready[0][0]):
            _, place, sandbox, key, after = heappop(unread)
            group = replace(filters, sandbox=sandbox, key=key)
            tree = await exchanges.tree(tenant, group, match=match, after=after, limit=AT_ONCE)
            # A key outside of any sandbox: those of its sandboxes come with them.
            places = [each for each in tree.places if each.summary.sandbox == sandbox]
            found = await asyncio.to_thread(find_threads, replace(tree, places=places))
            known = {thread.id: thread for thread in found}
            for thread in found:
                heappush(ready, (thread.id, place, thread, known))
            if len(tree.places) == AT_ONCE:
                last = tree.places[-1].summary.id
                heappush(unread, (last, place, sandbox, key, last))
            continue
        _, _, thread, threads = heappop(ready)
        if not thread.turns and not unanswered:
            continue
        try:
            await tell_thread(exchanges, tenant, thread, threads)
        except NotFound:
            continue  # Deleted in the meantime.
        if unanswered or not thread.messages or any(each.role is Role.ASSISTANT for each in thread.messages):
            yield await asyncio.to_thread(to_line, thread, form)
        thread.messages = []


def to_line(thread: Thread, form: Form) -> bytes:
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
        **said(thread, form),
        "exchanges": [each.id for each in thread.exchanges],
        "usage": {to_camel(name): value for name, value in asdict(thread.usage).items()},
        "estimated": thread.estimated,
        "cost": thread.cost,
    }
    if thread.notes:
        document["notes"] = thread.notes
    text = json.dumps({name: value for name, value in document.items() if value is not None}, ensure_ascii=False)
    return text.encode(errors="replace") + b"\n"


def said(thread: Thread, form: Form) -> dict[str, Any]:
    """The messages, and the system prompt and tools where that form has them apart."""
    messages = [Message(each.role, [_kept(part, form) for part in each.parts]) for each in thread.messages]
    thought = any(isinstance(part, Thinking) for each in messages for part in each.parts)
    # OpenAI's own models take no thoughts back, but who reads this wants them.
    model = "" if thought else thread.exchanges[-1].model
    request = Request(model=model, messages=messages, tools=thread.tools, max_tokens=1)
    if not thread.messages:
        return {"messages": []}
    try:
        body: dict[str, Any] = json.loads(FORMATS[_FORMATS[form]].write_request(request))
    except PaddockError as error:
        thread.notes.append(f"cannot be said in this form: {error.message}")
        return {"messages": []}
    thread.notes += [note for note in request.notes if note not in thread.notes]
    return {name: body[name] for name in _FIELDS if name in body}


def _kept(part: Part, form: Form) -> Part:
    """A thought that can be written whoever sealed it; to a model it would not be sent."""
    if not isinstance(part, Thinking) or part.redacted is not None or not part.text:
        return part
    if part.signature and not foreign(part.signature, _FAMILIES[form]):
        return part
    return Thinking(part.text, "" if form == "anthropic" else None)
