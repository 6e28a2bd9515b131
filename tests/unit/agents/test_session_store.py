"""The tables of sessions and messages, and the search in them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from paddock.errors import InvalidInput, SessionNotFound
from paddock.events.event_log import EventLog
from paddock.model.keys import ApiKey
from paddock.model.owners import TenantView
from paddock.model.sessions import (
    FileContent,
    MessageContent,
    PlanStep,
    Policy,
    PolicyAction,
    PolicyRule,
    Session,
    SessionMessage,
    SessionOrigin,
    SessionState,
    SessionUsage,
    TextContent,
    ToolCall,
)
from paddock.store import tables
from paddock.store.chat_sessions.message_search import index_term_for_name
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MESSAGE_COUNT = 100_000


def make_session(number: int = 0, tenant: str = "default", **fields: Any) -> Session:
    at = START + timedelta(seconds=number)
    defaults = {"agent": "planned", "engine": "planned", "model": "small", "created_at": at, "changed_at": at}
    return Session.model_validate(defaults | {"id": f"ses-{number}", "tenant": tenant} | fields)


def make_message(text: str, number: int = 0, session: str = "ses-0", **fields: Any) -> SessionMessage:
    defaults = {"turn": 1, "role": "user", "at": START + timedelta(seconds=number)}
    return SessionMessage.model_validate(
        defaults | {"id": f"msg-{number}", "session": session, "content": [TextContent(text=text)]} | fields
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
def session_store(store: Store) -> SessionStore:
    return SessionStore(store)


async def insert_sessions(store: Store, *new_sessions: Session) -> None:
    for session in new_sessions:
        assert await store.write(lambda c, s=session: SessionStore.insert_session(c, s)) == (session, True)  # type: ignore[misc]


async def store_messages(store: Store, *messages: SessionMessage) -> list[SessionMessage]:
    return await store.write(lambda connection: [SessionStore.store_message(connection, each) for each in messages])


async def test_stored_session_is_read_unchanged(store: Store, session_store: SessionStore) -> None:
    rule = PolicyRule(tool="linux_*", arguments={"path": "/etc/*"}, action=PolicyAction.DENY)
    session = make_session(
        title="Ünïcode",
        kinds=("code", "linux"),
        policy=Policy(rules=(rule,), allow_all=("code",)),
        plan=(PlanStep(title="one", state="done"), PlanStep(title="two")),
        usage=SessionUsage(requests=2, input_tokens=3, cost=0.5),
        sandboxes={"code": "sb-1"},
        origin=SessionOrigin(session="ses-9", message="msg-9"),
        budget=2**40,
    )
    await insert_sessions(store, session)
    assert await session_store.get("ses-0") == session == await session_store.get("ses-0", "default")
    for tenant in ("other", ""):
        with pytest.raises(SessionNotFound):
            await session_store.get("ses-0", tenant)
    later = START + timedelta(hours=1)
    changes = {"plan": (PlanStep(title="three"),), "state": SessionState.RUNNING, "usage": SessionUsage(requests=9)}
    updated = await store.write(lambda connection: SessionStore.update_session(connection, "ses-0", changes, later))
    assert updated == session.model_copy(update=changes | {"changed_at": later}) == await session_store.get("ses-0")
    with pytest.raises(SessionNotFound):
        await store.write(lambda connection: SessionStore.update_session(connection, "ses-1", changes, later))


async def test_messages_are_numbered_and_stored_once(store: Store, session_store: SessionStore) -> None:
    parts: list[MessageContent] = [
        TextContent(text="see"),
        FileContent(type="image", file="a" * 64, mime="image/png", size=3),
    ]
    calls = (
        ToolCall(id="c1", name="code_look", arguments={"deep": [1, {"a": None}]}),
        ToolCall(id="c2", name="x", malformed="{"),
    )
    await insert_sessions(store, make_session(0), make_session(1))
    full_message = make_message(
        "", 1, role="assistant", content=tuple(parts), thought="hm", calls=calls, cut="cancelled", by="b"
    )
    stored = await store_messages(
        store,
        make_message("one"),
        full_message,
        make_message("three", 2, turn=2),
        make_message("other", session="ses-1"),
    )
    assert [message.number for message in stored] == [1, 2, 3, 1]
    assert await session_store.list_messages("ses-0") == stored[:3]
    assert (
        await session_store.list_messages("ses-0", after=1, limit=1)
        == stored[1:2]
        == [await session_store.find_message("ses-0", "msg-1")]
    )
    assert await session_store.list_messages("ses-0", turn=2) == stored[2:3]
    (repeated,) = await store_messages(store, make_message("something else"))
    assert repeated == stored[0] and len(await session_store.list_messages("ses-0")) == 3
    assert await session_store.search_messages("default", "something") == []


async def test_engine_state_is_replaced(session_store: SessionStore) -> None:
    assert await session_store.load_engine_state("ses-0") is None
    for state in (b"one", b"\0two"):
        await session_store.save_engine_state("ses-0", state, START)
        assert await session_store.load_engine_state("ses-0") == state


async def test_search_finds_word_parts_of_own_tenant_only(store: Store, session_store: SessionStore) -> None:
    await insert_sessions(store, make_session(0, title="Birds"), make_session(1), make_session(2, "other"))
    await store_messages(
        store,
        make_message("The Pelican's beak holds more than its belly can"),
        make_message("pelicans again, and their output: 日本語のテキスト", 1, "ses-1", role="tool", call_id="c"),
        make_message("secret pelican", 2, "ses-2"),
        make_message("nothing", 3, thought="of a pelican", role="assistant"),
        make_message("", 4, content=[FileContent(file="b" * 64, name="pelican.csv")]),
    )

    async def search(words: str, **filters: Any) -> list[str]:
        return [hit.message for hit in await session_store.search_messages("default", words, **filters)]

    assert await search("pelican") == ["msg-4", "msg-1", "msg-0"]
    assert await search("PELI beak") == await search("beak s m") == ["msg-0"]
    assert await search("pelican", session="ses-1") == ["msg-1"]
    assert await search("pelican", limit=1) == ["msg-4"]
    assert await search("語のテ") == await search("日本") == ["msg-1"]
    assert await search("secret") == await search("thought") == []
    (hit,) = await session_store.search_messages("default", "belly")
    assert (hit.session, hit.title, hit.role, hit.number) == ("ses-0", "Birds", "user", 1) and "belly" in hit.excerpt


@pytest.mark.parametrize(
    "words", ['"', "a AND", "pel* OR", "NEAR(a b)", "text:x", "-", "^a", "{x}", "(", "'; DROP", "%", "_", "\\"]
)
async def test_query_text_is_never_syntax(store: Store, session_store: SessionStore, words: str) -> None:
    await insert_sessions(store, make_session())
    await store_messages(store, make_message(f"before {words} after", 0), make_message("nothing of it", 1))
    assert [hit.message for hit in await session_store.search_messages("default", words)] == ["msg-0"]


def undo_network(connection: Any) -> None:
    """Undo revisions 0021 to 0015."""
    for table in (
        "mcp_oauth_tokens",
        "mcp_oauth_clients",
        "mcp_servers",
        "mcp_sets",
        "mcp_tool_versions",
        "mcp_calls",
        "credential_vaults",
        "network_byte_counts",
    ):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    connection.exec_driver_sql("ALTER TABLE pools DROP COLUMN user")
    connection.exec_driver_sql("DROP TABLE IF EXISTS previews")
    connection.exec_driver_sql("DROP TABLE network_connections")
    columns = ("sandboxes", "network"), ("sandboxes", "network_token"), ("sessions", "network"), ("sessions", "mcp")
    for table, column in columns:
        connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.exec_driver_sql("ALTER TABLE sandboxes ADD COLUMN network_default TEXT")


def undo_plain_names(connection: Any) -> None:
    """Undo revision 0014."""
    undo_network(connection)
    for table in ("session_messages", "checkpoint_writes"):
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME COLUMN position TO place")
    if connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema WHERE name = 'session_index'").scalar():
        rows = connection.exec_driver_sql("SELECT rowid, text, tenant, session FROM session_index").fetchall()
        connection.exec_driver_sql("DROP TABLE session_index")
        connection.exec_driver_sql(
            "CREATE VIRTUAL TABLE session_index USING fts5(said, tenant, session, tokenize='trigram')"
        )
        for row in rows:
            connection.exec_driver_sql(
                "INSERT INTO session_index (rowid, said, tenant, session) VALUES (?, ?, ?, ?)", tuple(row)
            )


def undo_owners(connection: Any) -> None:
    """Undo revisions 0014 to 0011."""
    undo_plain_names(connection)
    connection.exec_driver_sql("DROP TABLE client_tools")
    connection.exec_driver_sql("ALTER TABLE pools DROP COLUMN max_total")
    moments = {"sandboxes": "created_at", "snapshots": "created_at", "runs": "created_at", "sessions": "changed_at"}
    for table, moment in moments.items():
        connection.exec_driver_sql(f"DROP INDEX ix_{table}_tenant_{moment}_subject_visibility")
        connection.exec_driver_sql(f"CREATE INDEX ix_{table}_tenant_{moment} ON {table} (tenant, {moment})")
        for column in ("subject", "visibility", *(["created_by"] if table != "sessions" else [])):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.exec_driver_sql("DROP INDEX ix_events_tenant_sequence_audience")
    connection.exec_driver_sql("CREATE INDEX ix_events_tenant_sequence ON events (tenant, sequence)")
    connection.exec_driver_sql("DROP INDEX ix_exchanges_visible")
    for table, column in (("events", "audience"), ("exchanges", "subject"), ("usage", "subject"), ("keys", "owner")):
        connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")


async def test_sessions_of_an_older_server_stay_visible_and_get_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    keys = {"key-1": "ann", "key-2": "twice", "key-3": "twice"}
    async with await Store.open(path) as store:
        for id, name in keys.items():
            key = ApiKey(id=id, name=name, tenant="default", scopes=frozenset(), prefix=id, created_at=START)
            await ApiKeyStore(store).insert(key, id)
        names = ("ann", "twice", "nobody")
        await insert_sessions(
            store, *(make_session(n).model_copy(update={"created_by": name}) for n, name in enumerate(names))
        )

        def downgrade(connection: Any) -> None:
            undo_owners(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0010'")

        await store.write(downgrade)
    async with await Store.open(path) as store:
        listed = await SessionStore(store).list(TenantView("default", "key-9", sees_all=False))
        assert {each.created_by: each.subject for each in listed} == {"ann": "key-1", "twice": None, "nobody": None}


async def test_old_index_without_tenants_stays_searchable(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    async with await Store.open(path) as store:
        await insert_sessions(store, make_session(0), make_session(1, "other"))
        await store_messages(store, make_message("pelican one"), make_message("pelican two", 1, "ses-1"))

        def downgrade(connection: Any) -> None:
            connection.exec_driver_sql("CREATE VIRTUAL TABLE session_search USING fts5(said, tokenize='trigram')")
            connection.exec_driver_sql("INSERT INTO session_search (rowid, said) SELECT rowid, text FROM session_index")
            connection.exec_driver_sql("DROP TABLE session_index")
            connection.exec_driver_sql("DROP TABLE logins")
            undo_owners(connection)
            connection.exec_driver_sql("ALTER TABLE exchanges DROP COLUMN preview")
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0007'")

        await store.write(downgrade)
    async with await Store.open(path) as store:
        results = [await SessionStore(store).search_messages(tenant, "pelican") for tenant in ("default", "other")]
        assert [[hit.message for hit in hits] for hits in results] == [["msg-0"], ["msg-1"]]


async def test_invalid_queries_are_refused(session_store: SessionStore) -> None:
    for words in ("", " \0 ", "x" * 1001, "a " * 33):
        with pytest.raises(InvalidInput):
            await session_store.search_messages("default", words)
    assert await session_store.search_messages("default", "before anything was said") == []


async def test_deleted_session_is_not_found(store: Store, session_store: SessionStore) -> None:
    await insert_sessions(store, make_session(0), make_session(1))
    await store_messages(store, make_message("pelican"), make_message("pelican", 1, "ses-1"))
    await session_store.save_engine_state("ses-0", b"x", START)
    removed = await store.write(lambda connection: SessionStore.delete_session(connection, "ses-0"))
    assert removed is not None and removed.id == "ses-0"
    assert [hit.session for hit in await session_store.search_messages("default", "pelican")] == ["ses-1"]
    assert await session_store.list_messages("ses-0") == [] and await session_store.load_engine_state("ses-0") is None
    assert await store.write(lambda connection: SessionStore.delete_session(connection, "ses-0")) is None


async def test_long_excerpt_is_cut_around_the_match(store: Store, session_store: SessionStore) -> None:
    await insert_sessions(store, make_session())
    await store_messages(store, make_message("x " * 5000 + "Pelican" + " y" * 5000))
    (hit,) = await session_store.search_messages("default", "pelican")
    assert "Pelican" in hit.excerpt and hit.excerpt.startswith("…") and hit.excerpt.endswith("…")
    assert len(hit.excerpt) < 300


@pytest.mark.slow
async def test_search_in_many_messages_is_quick(store: Store, session_store: SessionStore, capsys: Any) -> None:
    words = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa".split()
    await insert_sessions(store, *(make_session(number) for number in range(10)), make_session(10, "other"))

    texts = [
        " ".join(words[(number * step) % len(words)] for step in range(1, 40)) + f" number{number}"
        for number in range(MESSAGE_COUNT)
    ]

    def fill(connection: Any) -> None:
        # As `store_messages` writes them, but all at once.
        SessionStore.store_message(connection, make_message(texts[0], 0))
        insert_message = (
            "INSERT INTO session_messages (position, id, session, number, turn, role, content, thought, calls, at)"
            " VALUES (?, ?, ?, ?, 1, 'user', '[]', '', '[]', ?)"
        )
        numbers = range(1, MESSAGE_COUNT)
        at = START.isoformat(timespec="microseconds")
        connection.exec_driver_sql(insert_message, [(n + 1, f"msg-{n}", f"ses-{n % 10}", n + 1, at) for n in numbers])
        index = "INSERT INTO session_index (rowid, text, tenant, session) VALUES (?, ?, ?, ?)"
        tenant_term = index_term_for_name("default")
        connection.exec_driver_sql(
            index, [(n + 1, texts[n], tenant_term, index_term_for_name(f"ses-{n % 10}")) for n in numbers]
        )

    await store.write(fill)
    await store_messages(store, make_message("a needle, alpha", MESSAGE_COUNT, "ses-10"))
    milliseconds = {}
    for query in ("alpha bravo", "needle", "number99999", "lie del", "kilo zulu", "alpha number5"):
        start_time = time.perf_counter()
        await session_store.search_messages("default", query)
        milliseconds[query] = (time.perf_counter() - start_time) * 1000
    start_time = time.perf_counter()
    assert len(await session_store.search_messages("other", "alpha")) == 1
    milliseconds["alpha (other tenant)"] = (time.perf_counter() - start_time) * 1000
    start_time = time.perf_counter()
    assert await session_store.search_messages("default", "zz") == []
    milliseconds["zz (short)"] = (time.perf_counter() - start_time) * 1000
    with capsys.disabled():
        rounded = {query: round(each, 1) for query, each in milliseconds.items()}
        print(f"\nsearch in {MESSAGE_COUNT} messages, ms:", rounded)  # noqa: T201
    assert max(each for query, each in milliseconds.items() if "short" not in query) < 100


async def test_old_names_of_columns_and_stored_values_become_plain(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    sandbox = {"health": "gone", "reason": "killed"}
    end = {"state": "lost", "ended_by": "box_died", "reason": "box_died", "evidence": {"box": sandbox}}
    broken = {"state": "lost", "ended_by": "box_silent", "evidence": {"box": sandbox, "sandbox": "it broke off"}}
    setup = {"state": "failed", "ended_by": "setup", "evidence": {"stage": "start", "sandbox": "sb-1"}}
    progress = {"over": end, "watch": {"told": 3, "verdict": {**end, "ended_by": "box_frozen"}}}
    timestamp = START.isoformat()
    async with await Store.open(path) as store:
        await EventLog.open(store)
        await insert_sessions(store, make_session(0))
        await store_messages(store, make_message("pelican one"))

        def downgrade(connection: Any) -> None:
            for number, (result, run_progress) in enumerate(((end, {}), (broken, {}), (setup, {}), (None, progress))):
                connection.execute(
                    insert(tables.runs).values(
                        id=f"run-{number}",
                        tenant="default",
                        name="run",
                        task={},
                        task_name="run",
                        state="lost",
                        stage="release",
                        priority=0,
                        attempt=1,
                        hard=False,
                        scripted=False,
                        result=result,
                        progress=run_progress,
                        created_at=START,
                        changed_at=START,
                    )
                )
            connection.exec_driver_sql(
                "INSERT INTO events (stream, number, type, tenant, at, data) "
                "VALUES ('run/run-0', 1, 'run.ended', 'default', ?, ?)",
                (timestamp, json.dumps({"state": "lost", "ended_by": "box_frozen", "reason": "x"})),
            )
            undo_plain_names(connection)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0013'")

        await store.write(downgrade)
    async with await Store.open(path) as store:
        rows = await store.read(
            lambda connection: connection.execute(select(tables.runs.c.result, tables.runs.c.progress)).all()
        )
        assert rows[0].result == {**end, "ended_by": "sandbox_died", "evidence": {"sandbox": sandbox}}
        assert rows[1].result["ended_by"] == "sandbox_silent"
        assert rows[1].result["evidence"] == {"sandbox": sandbox, "collection": "it broke off"}
        assert rows[2].result == setup and rows[3].result is None
        assert rows[3].progress["over"] == rows[0].result
        assert rows[3].progress["watch"] == {"told": 3, "verdict": {**rows[0].result, "ended_by": "sandbox_frozen"}}
        ended = await store.read(lambda connection: connection.execute(select(tables.events.c.data)).scalars().all())
        assert [each["ended_by"] for each in ended if "ended_by" in each] == ["sandbox_frozen"]
        assert [hit.message for hit in await SessionStore(store).search_messages("default", "pelican")] == ["msg-0"]
        await store_messages(store, make_message("pelican two", 1))
        assert len(await SessionStore(store).search_messages("default", "pelican")) == 2
