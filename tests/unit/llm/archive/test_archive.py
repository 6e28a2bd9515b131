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


async def ids(exchange_archive: ExchangeArchive, tenant: str = "default", **filters: Any) -> list[str]:
    found, _ = await exchange_archive.list_exchanges(tenant, ExchangeFilters(**filters))
    return [summary.id for summary in found]


async def test_exchange_is_restored_unchanged(tmp_path: Path) -> None:
    streamed = an_exchange(1, answer=["It ", "is ", "four."], conversation="c-1", notes=["a note"], retries=2)
    failed = an_exchange(
        2, status=502, outcome=ExchangeOutcome.FAILED, error="nobody answered", response=[], usage=None
    )
    strange = an_exchange(3, request=b"\xff not JSON", response=[(0.1, b"<html>"), (0.2, b"")], model="é\n")
    async with archive(tmp_path) as exchange_archive:
        for exchange in (streamed, failed, strange):
            exchange_archive.enqueue(exchange)
        assert exchange_archive.waiting_bytes > 0
        await exchange_archive.flush()
        assert exchange_archive.waiting_bytes == 0
    async with archive(tmp_path) as exchange_archive:
        for exchange in (streamed, failed, strange):
            assert await exchange_archive.get("default", exchange.id) == exchange
        with pytest.raises(NotFound):
            await exchange_archive.get("default", "ex-0")


async def test_closing_writes_queued_exchanges(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        for number in range(50):
            exchange_archive.enqueue(an_exchange(number))
    assert rows(tmp_path)[0] == 50
    async with archive(tmp_path, enabled=False) as exchange_archive:
        exchange_archive.enqueue(an_exchange(51))
        await exchange_archive.write_now(an_exchange(52))
        assert not exchange_archive.strict
    assert rows(tmp_path)[0] == 50


async def test_exchange_written_twice_is_stored_once(tmp_path: Path) -> None:
    async with archive(tmp_path, durability="strict") as exchange_archive:
        exchange = an_exchange()
        await exchange_archive.write_now(exchange)
        exchange_archive.enqueue(exchange)
        await exchange_archive.flush()
        assert rows(tmp_path)[0] == 1 and exchange_archive.lost_count == 0


async def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        mine, theirs = an_exchange(1, tenant="one"), an_exchange(2, tenant="two", messages=[])
        exchange_archive.enqueue(mine)
        exchange_archive.enqueue(theirs)
        await exchange_archive.wait_until_searchable()
        assert await ids(exchange_archive, "one") == [mine.id]
        assert await ids(exchange_archive, "two", text="four") == [theirs.id]
        with pytest.raises(NotFound):
            await exchange_archive.get("one", theirs.id)
        with pytest.raises(NotFound):
            await exchange_archive.delete("one", theirs.id)
        assert await exchange_archive.list_conversations("one", "sb-1") != []
        assert [json.loads(line)["id"] async for line in exchange_archive.export_conversations("two")] == [theirs.id]
        assert await exchange_archive.delete_matching("two", ExchangeFilters()) == 1
        assert await ids(exchange_archive, "one") == [mine.id]


async def test_filters_and_pages(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        made: list[Exchange] = []
        for number in range(25):
            exchange = an_exchange(number, model=f"m{number % 2}", sandbox=f"sb-{number % 3}")
            if number % 5 == 0:
                exchange.caller = ModelCaller("default", "key-2", None, "run-1", "session-1", "ann@example.com")
                exchange.outcome, exchange.status, exchange.provider = ExchangeOutcome.FAILED, 502, "there"
            made.append(exchange)
            exchange_archive.enqueue(exchange)
        await exchange_archive.flush()
        newest_first = [exchange.id for exchange in reversed(made)]
        page, cursor = await exchange_archive.list_exchanges("default", limit=10)
        assert [summary.id for summary in page] == newest_first[:10] and cursor is not None
        page, cursor = await exchange_archive.list_exchanges("default", cursor=cursor, limit=15)
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
            assert await ids(exchange_archive, **filters) == fifth, filters
        assert len(await ids(exchange_archive, sandbox="sb-1")) == 7
        assert len(await ids(exchange_archive, model="m1")) == 12 and len(await ids(exchange_archive, model="m")) == 25
        assert await ids(exchange_archive, since=START + 20, until=START + 22) == [made[21].id, made[20].id]
        assert [exchange.id async for exchange in exchange_archive.iter_exchanges("default")] == newest_first[::-1]


async def test_search_finds_words_phrases_and_prefixes(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        first = [{"role": "user", "content": "Where does the Brontosaurus sleep?"}]
        first_exchange = an_exchange(1, first, answer=["In the ", "tall ", "grass."])
        more = [*first, {"role": "assistant", "content": "In the tall grass."}, {"role": "user", "content": "为什么呢"}]
        again = an_exchange(2, more, answer="Because it is warm there.")
        for exchange in (first_exchange, again):
            exchange_archive.enqueue(exchange)
        await exchange_archive.wait_until_searchable()
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
            assert await ids(exchange_archive, text=text) == [exchange.id for exchange in exchanges], text


async def test_invalid_queries_are_refused(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        for text in ("", "   ", '"', 'a "b', "***", "()", "x" * 2000, " ".join("abc" * 40), "\0", '""'):
            with pytest.raises(InvalidInput, match="text"):
                await exchange_archive.search("default", text)


async def test_hostile_queries_find_nothing(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        exchange_archive.enqueue(an_exchange())
        await exchange_archive.wait_until_searchable()
        for text in (
            "a AND OR b", "NEAR(a b)", "said:x", "-a", "a^2", "{a}", "'; DROP TABLE exchanges; --", "a*b", '"zz"*',
            "\udc80x", "a\0b", "NOT", "+", "two OR nothing", "exchange_search", "^two x", "two NOT x",
        ):  # fmt: skip
            try:
                found, _ = await exchange_archive.search("default", text)
            except InvalidInput:
                continue
            assert list(found) == [], text
        assert rows(tmp_path)[0] == 1


async def test_database_file_contains_no_secret(tmp_path: Path) -> None:
    secret = "provider-key-of-a-kind"
    async with archive(tmp_path, [secret], redact=[{"pattern": r"\b\d{3}-\d{2}-\d{4}\b"}]) as exchange_archive:
        secret_text = f"{secret} and 078-05-1120"
        exchanges = [
            an_exchange(1, [{"role": "user", "content": secret_text}, {"role": "user", "content": "fine"}]),
            an_exchange(2, answer=list(f"I know {secret_text}")),
            an_exchange(3, error=f"401 for {secret}", notes=[secret_text], model=secret, client=secret),
            an_exchange(4, body={"user": secret_text}),
            an_exchange(5, request=f"not JSON: {secret_text}".encode()),
        ]
        for exchange in exchanges:
            exchange_archive.enqueue(exchange)
        await exchange_archive.wait_until_searchable()
        assert exchange_archive.lost_count == 0
        shown = await exchange_archive.get("default", exchanges[0].id)
        assert json.loads(shown.request)["messages"][0]["content"] == "[redacted] and [redacted]"
        restored_answer = parse_archived_answer(await exchange_archive.get("default", exchanges[1].id))
        assert restored_answer is not None and restored_answer.parts == [ModelText("I know [redacted] and [redacted]")]
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes() and b"078-05-1120" not in path.read_bytes()


async def test_deletion_removes_all_content(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        messages = [{"role": "user", "content": "zebra " * 200}]
        first = an_exchange(1, messages)
        second = an_exchange(2, [*messages, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])
        for exchange in (first, second):
            exchange_archive.enqueue(exchange)
        await exchange_archive.wait_until_searchable()
        await exchange_archive.delete("default", first.id)
        assert await exchange_archive.get("default", second.id) == second
        assert await ids(exchange_archive, text="zebra") == []
        third = an_exchange(3, messages)
        exchange_archive.enqueue(third)
        await exchange_archive.flush()
        assert await exchange_archive.get("default", third.id) == third
        assert await exchange_archive.delete_matching("default", ExchangeFilters()) == 2
        assert rows(tmp_path) == [0, 0, 0, 0]
        exchange_archive.enqueue(first)
        await exchange_archive.wait_until_searchable()
        assert await exchange_archive.get("default", first.id) == first and await ids(
            exchange_archive, text="zebra"
        ) == [first.id]


async def test_index_is_rebuilt_when_its_version_changes(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        first, second = an_exchange(1), an_exchange(2, [{"role": "user", "content": "Any zebras?"}])
        exchange_archive.enqueue(first)
        exchange_archive.enqueue(second)
        await exchange_archive.wait_until_searchable()
        with closing(sqlite3.connect(tmp_path / "p.db")) as database, database:
            database.execute("UPDATE exchange_words SET digest = x'00' WHERE number = 1")
        await exchange_archive.delete("default", first.id)
        await exchange_archive.wait_until_searchable()
        assert (
            await ids(exchange_archive, text="zebras") == [second.id] and await ids(exchange_archive, text="two") == []
        )
        assert rows(tmp_path)[3] == 1


async def test_expired_exchanges_are_deleted(tmp_path: Path) -> None:
    async with archive(tmp_path, keep="1s") as exchange_archive:
        for number in range(250):
            exchange_archive.enqueue(an_exchange(number, tenant=f"t{number % 3}"))
        await exchange_archive.flush()
        for _ in range(200):
            if rows(tmp_path)[:3] == [0, 0, 0]:
                return
            await asyncio.sleep(0.02)
    pytest.fail("they are still there")


async def test_following_yields_new_exchanges(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        exchange_archive.enqueue(an_exchange(1))
        await exchange_archive.flush()
        seen: list[str] = []

        async def follow(after: int | None) -> None:
            async for summary in exchange_archive.follow_written("default", after):
                seen.append(summary.id)

        now, all_of_it = asyncio.create_task(follow(None)), asyncio.create_task(follow(0))
        while not seen:
            await asyncio.sleep(0.005)
        new = [an_exchange(number) for number in range(2, 300)]
        for exchange in new:
            exchange_archive.enqueue(exchange)
        exchange_archive.enqueue(an_exchange(999, tenant="other"))
        await exchange_archive.flush()
        exchange_archive.stop_following()
        await asyncio.gather(now, all_of_it)
        assert len(seen) == 1 + 2 * 298 and set(seen[1:]) == {exchange.id for exchange in new}
        async with aclosing(exchange_archive.follow_written("default", 298)) as following:  # type: ignore[type-var]
            assert (await anext(following)).id == new[-1].id


async def test_concurrent_writes_are_all_stored(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        for number in range(3000):
            exchange_archive.enqueue(an_exchange(number))
        await exchange_archive.flush()
        assert rows(tmp_path)[0] == 3000 and exchange_archive.lost_count == 0
        newest, _ = await exchange_archive.list_exchanges("default", limit=1)
        assert newest[0].number == 3000


async def test_write_queue_is_bounded(tmp_path: Path) -> None:
    async with archive(tmp_path, max_waiting="1MiB") as exchange_archive:
        for number in range(10):
            exchange_archive.enqueue(an_exchange(number, request=bytes(300_000)))
        assert exchange_archive.lost_count == 7 and exchange_archive.waiting_bytes < 2**20
        await exchange_archive.flush()
        assert rows(tmp_path)[0] == 3


@pytest.mark.parametrize("marks", [False, True])
async def test_long_conversation_takes_linear_space(tmp_path: Path, marks: bool) -> None:
    """Two hundred turns with texts of one to four kilobytes, streamed; caching marks move along with the turns."""
    chance = random.Random(5)
    messages: list[dict[str, Any]] = [{"role": "system", "content": sentence(chance, 6000)}]
    async with archive(tmp_path) as exchange_archive:
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
            await exchange_archive.write_now(exchange)
            messages.append({"role": "assistant", "content": answer})
            if turn == 99:
                await exchange_archive.wait_until_searchable()
                halfway = size_on_disk(tmp_path) - before
        await exchange_archive.wait_until_searchable()
        taken = size_on_disk(tmp_path) - before
        assert await exchange_archive.get("default", exchange.id) == exchange
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
    async with archive(tmp_path) as exchange_archive:
        exchange_archive.enqueue(an_exchange(0, secret_messages))
        await exchange_archive.flush()
    async with archive(tmp_path, [secret]) as exchange_archive:
        exchange_archive.enqueue(an_exchange(1, [*secret_messages, {"role": "user", "content": "Say it."}]))
        await exchange_archive.flush()
        for form in ("openai", "anthropic"):
            lines = [json.loads(line) async for line in exchange_archive.export_conversations("default", form=form)]
            assert lines and secret not in json.dumps(lines).replace('\\"', '"')
            assert "[redacted]" in json.dumps(lines)
        newest, _ = await exchange_archive.list_exchanges("default", limit=1)
        assert b"secret" not in (await exchange_archive.get("default", newest[0].id)).request
