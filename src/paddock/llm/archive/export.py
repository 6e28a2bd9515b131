"""Conversations as lines of JSON, for training, evaluation and other tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any, Literal

from paddock.errors import NotFound, PaddockError
from paddock.llm.archive.prepare import restore
from paddock.llm.archive.threads import Thread, find_threads, tell
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Request
from paddock.model.exchanges import Filters
from paddock.store.exchanges import ExchangeStore

Form = Literal["openai", "anthropic"]
AT_ONCE = 2000
"""Exchanges of one sandbox or key that are joined at a time; a longer conversation comes in parts."""
_FORMATS = {"openai": "openai-chat", "anthropic": "anthropic"}
_FIELDS = ("system", "messages", "tools")


async def export(
    exchanges: ExchangeStore, tenant: str, filters: Filters, match: str | None, form: Form
) -> AsyncIterator[bytes]:
    """One line for each conversation, those of one sandbox or key after the other."""
    for sandbox, key in await exchanges.groups(tenant, filters, match):
        group = replace(filters, sandbox=sandbox, key=key)
        after: str | None = None
        while True:
            tree = await exchanges.tree(tenant, group, match=match, after=after, limit=AT_ONCE)
            # A key outside of any sandbox: those of its sandboxes come with them.
            places = [place for place in tree.places if place.summary.sandbox == sandbox]
            for thread in await asyncio.to_thread(find_threads, replace(tree, places=places)):
                assert thread.latest is not None
                try:
                    tell(thread, restore(await exchanges.get(tenant, thread.latest.id)))
                except NotFound:
                    continue  # Deleted in the meantime.
                yield to_line(thread, form)
            if len(tree.places) < AT_ONCE:
                break
            after = tree.places[-1].summary.id


def to_line(thread: Thread, form: Form) -> bytes:
    first = thread.exchanges[0]
    document: dict[str, Any] = {
        "id": thread.id,
        "kind": thread.kind,
        "at": first.at,
        "sandbox": first.sandbox,
        "run": first.run,
        "session": first.session,
        "user": first.user,
        "conversation": thread.conversation,
        "models": thread.models,
        **said(thread, form),
        "exchanges": [each.id for each in thread.exchanges],
        "usage": asdict(thread.usage),
        "cost": thread.cost,
    }
    if thread.notes:
        document["notes"] = thread.notes
    text = json.dumps({name: value for name, value in document.items() if value is not None}, ensure_ascii=False)
    return text.encode(errors="replace") + b"\n"


def said(thread: Thread, form: Form) -> dict[str, Any]:
    """The messages, and the system prompt and tools where that form has them apart."""
    request = Request(model=thread.exchanges[-1].model, messages=thread.messages, tools=thread.tools, max_tokens=1)
    if not thread.messages:
        return {"messages": []}
    try:
        body: dict[str, Any] = json.loads(FORMATS[_FORMATS[form]].write_request(request))
    except PaddockError as error:
        thread.notes.append(f"cannot be said in this form: {error.message}")
        return {"messages": []}
    thread.notes += [note for note in request.notes if note not in thread.notes]
    return {name: body[name] for name in _FIELDS if name in body}
