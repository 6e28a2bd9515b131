"""References to items of earlier answers are resolved from memory and from the archive."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.config.llm import ArchiveConfig
from paddock.errors import InvalidInput, TooLarge
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.exchange_encoding import ArchivedAnswer
from paddock.llm.exchange import Exchange, ExchangeIdGenerator, ModelCaller
from paddock.llm.formats.openai_responses.item_ids import new_output_item_id
from paddock.llm.formats.openai_responses.item_reference_bodies import MAX_REFERENCED_ANSWERS, referenced_item_ids
from paddock.llm.gateway.item_references import ItemReferenceResolver
from paddock.llm.gateway.recent_answers import RecentAnswers
from paddock.llm.offload.worker_pool import OffloadWorkerPool

from ..archive.exchange_samples import an_exchange, archive

pytestmark = pytest.mark.anyio
CALLER = ModelCaller("default", "key-1", "sb-1")
IDS = ExchangeIdGenerator()
SECRET = "sk-proj-abc123def456ghi789jkl0"


def an_answer(text: str = "Hello", *, stream: bool = False, at: float = 0.0, **fields: Any) -> Exchange:
    """An exchange with one item, as the proxy writes it for clients of the Responses API."""
    exchange_id = IDS.new_id(at or time.time())
    item = {
        "type": "message",
        "id": new_output_item_id("msg_", exchange_id, 0),
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
    body = json.dumps(response).encode()
    pieces = [(0.1, body)]
    if stream:
        completed = json.dumps({"type": "response.completed", "response": response}).encode()
        pieces = [(0.1, b"event: response.created\ndata: {}\n\n"), (0.2, b"data: " + completed + b"\n\n")]
    request = b'{"model": "m", "input": "Hi"}'
    values: dict[str, Any] = {"format": "openai-responses", "id": exchange_id, "request": request, "response": pieces}
    return an_exchange(**(values | {"stream": stream} | fields))


def item_id(exchange: Exchange) -> str:
    return new_output_item_id("msg_", exchange.id, 0)


def references(exchanges: Sequence[Exchange]) -> bytes:
    items = [{"type": "item_reference", "id": item_id(each)} for each in exchanges]
    return json.dumps({"model": "m", "input": [*items, {"role": "user", "content": "Go on"}]}).encode()


class NoArchive:
    """An archive that is off, or that has not written anything yet."""

    async def iter_answers(
        self, tenant: str, key_id: str, exchange_ids: Sequence[str]
    ) -> AsyncIterator[ArchivedAnswer]:
        for _ in ():
            yield ArchivedAnswer("", False, b"", False)


def resolver(
    archive: ExchangeArchive | NoArchive, recent: RecentAnswers | None = None, **settings: Any
) -> ItemReferenceResolver:
    return ItemReferenceResolver(ArchiveConfig(**settings), archive, recent or RecentAnswers(), OffloadWorkerPool())


def texts(body: bytes) -> list[str]:
    return [item["content"][0]["text"] for item in json.loads(body)["input"] if item.get("type") == "message"]


async def test_a_long_conversation_is_resolved_from_the_archive(tmp_path: Path) -> None:
    answers = [an_answer(f"answer {number}", stream=number % 2 == 0) for number in range(450)]
    async with archive(tmp_path) as exchange_archive:
        for each in answers:
            exchange_archive.enqueue(each)
        body = await resolver(exchange_archive).resolve(references(answers), CALLER, provider_resolves=False)
    assert texts(body) == [f"answer {number}" for number in range(450)]


async def test_answers_to_another_key_are_not_found(tmp_path: Path) -> None:
    answer = an_answer()
    async with archive(tmp_path) as exchange_archive:
        await exchange_archive.write_now(answer)
        recent = RecentAnswers()
        recent.add(answer)
        other = ModelCaller("default", "key-2")
        with pytest.raises(InvalidInput, match="no item of that id is in the archive for this key"):
            await resolver(exchange_archive, recent).resolve(references([answer]), other, provider_resolves=False)


def test_a_request_with_too_many_references_names_the_limit() -> None:
    answers = [IDS.new_id(number) for number in range(MAX_REFERENCED_ANSWERS + 1)]
    items = [{"type": "item_reference", "id": new_output_item_id("msg_", each, 0)} for each in answers]
    with pytest.raises(TooLarge, match=f"more than {MAX_REFERENCED_ANSWERS} answers.*store: false"):
        referenced_item_ids(json.dumps({"input": items}).encode())
    assert len(referenced_item_ids(json.dumps({"input": items[1:]}).encode())) == MAX_REFERENCED_ANSWERS


@pytest.mark.parametrize("stream", [False, True])
async def test_recent_answers_need_no_archive(stream: bool) -> None:
    recent = RecentAnswers()
    answer = an_answer(f"with {SECRET}", stream=stream)
    recent.add(answer)
    body = await resolver(NoArchive(), recent, enabled=False).resolve(
        references([answer]), CALLER, provider_resolves=False
    )
    assert texts(body) == [f"with {SECRET}"]


@pytest.mark.parametrize(
    ("settings", "age", "cause"),
    [
        ({"enabled": False}, 0, r"the archive is off \(llm.archive.enabled\)"),
        ({"keep": 60}, 120, "older than llm.archive.keep"),
        ({"keep": 600}, 120, "no item of that id"),
    ],
)
async def test_the_error_names_the_cause_and_the_remedy(settings: dict[str, Any], age: float, cause: str) -> None:
    answer = an_answer(at=time.time() - age)
    with pytest.raises(InvalidInput, match=cause) as refused:
        await resolver(NoArchive(), **settings).resolve(references([answer]), CALLER, provider_resolves=False)
    assert item_id(answer) in refused.value.message and "`store: false`" in refused.value.message


async def test_references_are_relayed_to_their_possible_provider() -> None:
    body = references([an_answer()])
    assert await resolver(NoArchive()).resolve(body, CALLER, provider_resolves=True) == body


async def test_redacted_item_is_not_resolved(tmp_path: Path) -> None:
    answers = [an_answer(f"The key is {SECRET}."), an_answer("Nothing secret.")]
    async with archive(tmp_path) as exchange_archive:
        for each in answers:
            await exchange_archive.write_now(each)
        with pytest.raises(InvalidInput, match="the archive removed a secret from it"):
            await resolver(exchange_archive).resolve(references(answers), CALLER, provider_resolves=False)
        body = await resolver(exchange_archive).resolve(references(answers[1:]), CALLER, provider_resolves=False)
    assert texts(body) == ["Nothing secret."]


def test_oldest_answers_of_a_key_are_evicted_first() -> None:
    answers = [an_answer("x" * 1000) for _ in range(4)]
    recent = RecentAnswers(max_key_bytes=3 * 1600)
    for each in answers:
        recent.add(each)
    is_cached = [recent.find("key-1", each.id) is not None for each in answers]
    assert is_cached == [False, True, True, True]


def test_least_recently_used_key_is_evicted_first() -> None:
    first, second, third = (an_answer(key=f"key-{number}") for number in range(3))
    recent = RecentAnswers(max_answers=2)
    recent.add(first)
    recent.add(second)
    assert recent.find("key-0", first.id) is not None
    recent.add(third)
    assert recent.find("key-1", second.id) is None
    assert recent.find("key-0", first.id) is not None and recent.find("key-2", third.id) is not None
    assert recent.find("key-1", third.id) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "openai-chat"},
        {"status": 500},
        {"request": b'{"model": "m", "store": false}'},
        {"provider_format": "openai-responses"},
    ],
)
def test_unreferenceable_answers_are_not_cached(fields: dict[str, Any]) -> None:
    answer = an_answer(**fields)
    recent = RecentAnswers()
    recent.add(answer)
    assert recent.find("key-1", answer.id) is None


def test_store_false_in_message_text_is_not_a_setting() -> None:
    answer = an_answer(request=json.dumps({"model": "m", "input": 'set "store": false'}).encode())
    recent = RecentAnswers()
    recent.add(answer)
    assert recent.find("key-1", answer.id) is not None


def test_answer_above_the_limit_of_a_key_is_not_cached() -> None:
    recent = RecentAnswers(max_key_bytes=1000)
    answer = an_answer("x" * 1000)
    recent.add(answer)
    recent.add(an_answer("x"))
    assert recent.find("key-1", answer.id) is None
