"""Exchanges are archived once, and can be listed and found."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput, NotFound
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.exchange_parsing import parse_archived_answer
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import ModelText
from paddock.model.exchanges import ExchangeFilters

from .exchange_samples import START, an_exchange, archive, chat_stream, sentence

pytestmark = pytest.mark.anyio
TABLES = ("exchanges", "exchange_messages", "exchange_turns", "exchange_words")


def rows(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "p.db")) as database:
        return [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES]


async def ids(kept: ExchangeArchive, tenant: str = "default", **filters: Any) -> list[str]:
    found, _ = await kept.list_exchanges(tenant, ExchangeFilters(**filters))
    return [summary.id for summary in found]


async def test_exchange_is_restored_unchanged(tmp_path: Path) -> None:
    streamed = an_exchange(1, answer=["It ", "is ", "four."], conversation="c-1", notes=["a note"], retries=2)
    failed = an_exchange(
        2, status=502, outcome=ExchangeOutcome.FAILED, error="nobody answered", response=[], usage=None
    )
    strange = an_exchange(3, request=b"\xff not JSON", response=[(0.1, b"<html>"), (0.2, b"")], model="é\n")
    async with archive(tmp_path) as kept:
        for exchange in (streamed, failed, strange):
            kept.enqueue(exchange)
        assert kept.waiting_bytes > 0
        await kept.flush()
        assert kept.waiting_bytes == 0
    async with archive(tmp_path) as kept:
        for exchange in (streamed, failed, strange):
            assert await kept.get("default", exchange.id) == exchange
        with pytest.raises(NotFound):
            await kept.get("default", "ex-0")


async def test_closing_writes_queued_exchanges(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        for number in range(50):
            kept.enqueue(an_exchange(number))
    assert rows(tmp_path)[0] == 50
    async with archive(tmp_path, enabled=False) as kept:
        kept.enqueue(an_exchange(51))
        await kept.write_now(an_exchange(52))
        assert not kept.strict
    assert rows(tmp_path)[0] == 50


async def test_exchange_written_twice_is_stored_once(tmp_path: Path) -> None:
    async with archive(tmp_path, durability="strict") as kept:
        exchange = an_exchange()
        await kept.write_now(exchange)
        kept.enqueue(exchange)
        await kept.flush()
        assert rows(tmp_path)[0] == 1 and kept.lost_count == 0


async def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        mine, theirs = an_exchange(1, tenant="one"), an_exchange(2, tenant="two", messages=[])
        kept.enqueue(mine)
        kept.enqueue(theirs)
        await kept.wait_until_searchable()
        assert await ids(kept, "one") == [mine.id]
        assert await ids(kept, "two", text="four") == [theirs.id]
        with pytest.raises(NotFound):
            await kept.get("one", theirs.id)
        with pytest.raises(NotFound):
            await kept.delete("one", theirs.id)
        assert await kept.list_conversations("one", "sb-1") != []
        assert [json.loads(line)["id"] async for line in kept.export_conversations("two")] == [theirs.id]
        assert await kept.delete_matching("two", ExchangeFilters()) == 1
        assert await ids(kept, "one") == [mine.id]


async def test_filters_and_pages(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        made: list[Exchange] = []
        for number in range(25):
            exchange = an_exchange(number, model=f"m{number % 2}", sandbox=f"sb-{number % 3}")
            if number % 5 == 0:
                exchange.caller = ModelCaller("default", "key-2", None, "run-1", "session-1", "ann@example.com")
                exchange.outcome, exchange.status, exchange.provider = ExchangeOutcome.FAILED, 502, "there"
            made.append(exchange)
            kept.enqueue(exchange)
        await kept.flush()
        newest_first = [exchange.id for exchange in reversed(made)]
        page, cursor = await kept.list_exchanges("default", limit=10)
        assert [summary.id for summary in page] == newest_first[:10] and cursor is not None
        page, cursor = await kept.list_exchanges("default", cursor=cursor, limit=15)
        assert [summary.id for summary in page] == newest_first[10:] and cursor is None
        fifth = [exchange.id for exchange in reversed(made[::5])]
        for filters in (
            {"run": "run-1"},
            {"session": "session-1"},
            {"user": "ann@example.com"},
            {"key": "key-2"},
            {"outcome": "failed"},
            {"status": 502},
            {"provider": "there"},
        ):
            assert await ids(kept, **filters) == fifth, filters
        assert len(await ids(kept, sandbox="sb-1")) == 7
        assert len(await ids(kept, model="m1")) == 12 and len(await ids(kept, model="m")) == 25
        assert await ids(kept, since=START + 20, until=START + 22) == [made[21].id, made[20].id]
        assert [exchange.id async for exchange in kept.iter_exchanges("default")] == newest_first[::-1]


async def test_search_finds_words_phrases_and_prefixes(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        first = [{"role": "user", "content": "Where does the Brontosaurus sleep?"}]
        first_exchange = an_exchange(1, first, answer=["In the ", "tall ", "grass."])
        more = [*first, {"role": "assistant", "content": "In the tall grass."}, {"role": "user", "content": "为什么呢"}]
        again = an_exchange(2, more, answer="Because it is warm there.")
        for exchange in (first_exchange, again):
            kept.enqueue(exchange)
        await kept.wait_until_searchable()
        found = {
            "brontosaurus": [first_exchange],
            "bronto*": [first_exchange],
            '"tall grass"': [first_exchange],
            '"grass tall"': [],
            "tall warm": [],
            "sleep GRASS": [first_exchange],
            "warm": [again],
            "什么": [again],
            "system": [],
        }
        for text, exchanges in found.items():
            assert await ids(kept, text=text) == [exchange.id for exchange in exchanges], text


async def test_invalid_queries_are_refused(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        for text in ("", "   ", '"', 'a "b', "***", "()", "x" * 2000, " ".join("abc" * 40), "\0", '""'):
            with pytest.raises(InvalidInput, match="text"):
                await kept.search("default", text)


async def test_hostile_queries_find_nothing(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        kept.enqueue(an_exchange())
        await kept.wait_until_searchable()
        for text in (
            "a AND OR b", "NEAR(a b)", "said:x", "-a", "a^2", "{a}", "'; DROP TABLE exchanges; --", "a*b", '"zz"*',
            "\udc80x", "a\0b", "NOT", "+", "two OR nothing", "exchange_search", "^two x", "two NOT x",
        ):  # fmt: skip
            try:
                found, _ = await kept.search("default", text)
            except InvalidInput:
                continue
            assert list(found) == [], text
        assert rows(tmp_path)[0] == 1


async def test_database_file_contains_no_secret(tmp_path: Path) -> None:
    secret = "provider-key-of-a-kind"
    async with archive(tmp_path, [secret], redact=[{"pattern": r"\b\d{3}-\d{2}-\d{4}\b"}]) as kept:
        secret_text = f"{secret} and 078-05-1120"
        exchanges = [
            an_exchange(1, [{"role": "user", "content": secret_text}, {"role": "user", "content": "fine"}]),
            an_exchange(2, answer=list(f"I know {secret_text}")),
            an_exchange(3, error=f"401 for {secret}", notes=[secret_text], model=secret, client=secret),
            an_exchange(4, body={"user": secret_text}),
            an_exchange(5, request=f"not JSON: {secret_text}".encode()),
        ]
        for exchange in exchanges:
            kept.enqueue(exchange)
        await kept.wait_until_searchable()
        assert kept.lost_count == 0
        shown = await kept.get("default", exchanges[0].id)
        assert json.loads(shown.request)["messages"][0]["content"] == "[redacted] and [redacted]"
        restored_answer = parse_archived_answer(await kept.get("default", exchanges[1].id))
        assert restored_answer is not None and restored_answer.parts == [ModelText("I know [redacted] and [redacted]")]
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes() and b"078-05-1120" not in path.read_bytes()


async def test_deletion_removes_all_content(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        messages = [{"role": "user", "content": "zebra " * 200}]
        first = an_exchange(1, messages)
        second = an_exchange(2, [*messages, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])
        for exchange in (first, second):
            kept.enqueue(exchange)
        await kept.wait_until_searchable()
        await kept.delete("default", first.id)
        assert await kept.get("default", second.id) == second
        assert await ids(kept, text="zebra") == []
        third = an_exchange(3, messages)
        kept.enqueue(third)
        await kept.flush()
        assert await kept.get("default", third.id) == third
        assert await kept.delete_matching("default", ExchangeFilters()) == 2
        assert rows(tmp_path) == [0, 0, 0, 0]
        kept.enqueue(first)
        await kept.wait_until_searchable()
        assert await kept.get("default", first.id) == first and await ids(kept, text="zebra") == [first.id]


async def test_index_is_rebuilt_when_its_version_changes(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        first, second = an_exchange(1), an_exchange(2, [{"role": "user", "content": "Any zebras?"}])
        kept.enqueue(first)
        kept.enqueue(second)
        await kept.wait_until_searchable()
        with closing(sqlite3.connect(tmp_path / "p.db")) as database, database:
            database.execute("UPDATE exchange_words SET digest = x'00' WHERE number = 1")
        await kept.delete("default", first.id)
        await kept.wait_until_searchable()
        assert await ids(kept, text="zebras") == [second.id] and await ids(kept, text="two") == []
        assert rows(tmp_path)[3] == 1


async def test_expired_exchanges_are_deleted(tmp_path: Path) -> None:
    async with archive(tmp_path, keep="1s") as kept:
        for number in range(250):
            kept.enqueue(an_exchange(number, tenant=f"t{number % 3}"))
        await kept.flush()
        for _ in range(200):
            if rows(tmp_path)[:3] == [0, 0, 0]:
                return
            await asyncio.sleep(0.02)
    pytest.fail("they are still there")


async def test_following_yields_new_exchanges(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        kept.enqueue(an_exchange(1))
        await kept.flush()
        seen: list[str] = []

        async def follow(after: int | None) -> None:
            async for summary in kept.follow_written("default", after):
                seen.append(summary.id)

        now, all_of_it = asyncio.create_task(follow(None)), asyncio.create_task(follow(0))
        while not seen:
            await asyncio.sleep(0.005)
        new = [an_exchange(number) for number in range(2, 300)]
        for exchange in new:
            kept.enqueue(exchange)
        kept.enqueue(an_exchange(999, tenant="other"))
        await kept.flush()
        kept.stop_following()
        await asyncio.gather(now, all_of_it)
        assert len(seen) == 1 + 2 * 298 and set(seen[1:]) == {exchange.id for exchange in new}
        async with aclosing(kept.follow_written("default", 298)) as following:  # type: ignore[type-var]
            assert (await anext(following)).id == new[-1].id


async def test_concurrent_writes_are_all_stored(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        for number in range(3000):
            kept.enqueue(an_exchange(number))
        await kept.flush()
        assert rows(tmp_path)[0] == 3000 and kept.lost_count == 0
        newest, _ = await kept.list_exchanges("default", limit=1)
        assert newest[0].number == 3000


async def test_write_queue_is_bounded(tmp_path: Path) -> None:
    async with archive(tmp_path, max_waiting="1MiB") as kept:
        for number in range(10):
            kept.enqueue(an_exchange(number, request=bytes(300_000)))
        assert kept.lost_count == 7 and kept.waiting_bytes < 2**20
        await kept.flush()
        assert rows(tmp_path)[0] == 3


@pytest.mark.parametrize("marks", [False, True])
async def test_long_conversation_takes_linear_space(tmp_path: Path, marks: bool) -> None:
    """Two hundred turns with texts of one to four kilobytes, streamed; caching marks move along with the turns."""
    chance = random.Random(5)
    messages: list[dict[str, Any]] = [{"role": "system", "content": sentence(chance, 6000)}]
    async with archive(tmp_path) as kept:
        before = size_on_disk(tmp_path)
        halfway = 0
        for turn in range(200):
            messages.append({"role": "user", "content": sentence(chance, chance.randint(1000, 4000))})
            answer = sentence(chance, chance.randint(1000, 4000))
            sent = messages
            if marks:
                content = [{"type": "text", "text": messages[-1]["content"], "cache_control": {"type": "ephemeral"}}]
                sent = [*messages[:-1], {"role": "user", "content": content}]
            exchange = an_exchange(turn, sent, [answer[at : at + 12] for at in range(0, len(answer), 12)])
            await kept.write_now(exchange)
            messages.append({"role": "assistant", "content": answer})
            if turn == 99:
                await kept.wait_until_searchable()
                halfway = size_on_disk(tmp_path) - before
        await kept.wait_until_searchable()
        taken = size_on_disk(tmp_path) - before
        assert await kept.get("default", exchange.id) == exchange
    last = len(exchange.request)
    assert taken < 3 * last, f"{taken / last:.2f} times"
    assert taken < 2.2 * halfway


def size_on_disk(directory: Path) -> int:
    """Of the database with all its indexes, once everything has left the journal."""
    with closing(sqlite3.connect(directory / "p.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        used = (
            database.execute("PRAGMA page_count").fetchone()[0]
            - database.execute("PRAGMA freelist_count").fetchone()[0]
        )
        return int(used * database.execute("PRAGMA page_size").fetchone()[0])


async def test_partial_answer_is_shown(tmp_path: Path) -> None:
    whole = [(0.1, piece) for piece in chat_stream(["It ", "is ", "four."])]
    cut = parse_archived_answer(an_exchange(answer=["x"], response=whole[:3], outcome=ExchangeOutcome.CUT))
    assert cut is not None and cut.parts == [ModelText("It is ")] and cut.notes
    assert parse_archived_answer(an_exchange(status=500)) is None
    assert parse_archived_answer(an_exchange(response=[(0.1, b"<html>")])) is None


async def test_exports_mask_secrets_in_older_exchanges(tmp_path: Path) -> None:
    secret = 'run-"secret"-123'
    secret_messages = [{"role": "user", "content": f"The password is {secret}."}]
    async with archive(tmp_path) as kept:
        kept.enqueue(an_exchange(0, secret_messages))
        await kept.flush()
    async with archive(tmp_path, [secret]) as kept:
        kept.enqueue(an_exchange(1, [*secret_messages, {"role": "user", "content": "Say it."}]))
        await kept.flush()
        for form in ("openai", "anthropic"):
            lines = [json.loads(line) async for line in kept.export_conversations("default", form=form)]
            assert lines and secret not in json.dumps(lines).replace('\\"', '"')
            assert "[redacted]" in json.dumps(lines)
        newest, _ = await kept.list_exchanges("default", limit=1)
        assert b"secret" not in (await kept.get("default", newest[0].id)).request
