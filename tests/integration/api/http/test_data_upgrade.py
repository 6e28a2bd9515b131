"""A data directory of release 0.1 opens in this version with all its data."""

from __future__ import annotations

import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.store.schema_migration import HEAD
from tests.support.server import Server, eventually, run_server

ARCHIVE = Path(__file__).parents[3] / "fixtures" / "data-0.1.tar.gz"
SESSION = "ses-cf852c05dd897356"
EXCHANGES = ("ex-066096c875189d67408261b858", "ex-066096c3fbda8903b069b22e4a", "ex-066096c3ca4884fc8118739255")
SUCCEEDED, FAILED = "run-0eda19821d4b9d4d", "run-3a87f5a0c68f9915"


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory / "data")  # made by this project
    assert schema_revision(directory / "data") == "0013"
    with run_server(directory) as server:
        yield server
        with server.client() as client:
            client.delete("/v1/pools/hosts").raise_for_status()


@pytest.fixture(scope="module")
def client(old_server: Server) -> Iterator[httpx.Client]:
    with old_server.client() as http_client:
        yield http_client


def schema_revision(data: Path) -> str:
    with closing(sqlite3.connect(data / "paddock.db")) as database:
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def schema_rows(data: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(data / "paddock.db")) as database:
        return list(database.execute("SELECT name, sql, rootpage FROM sqlite_schema ORDER BY name"))


def get_json(client: httpx.Client, path: str, **params: str) -> Any:
    response = client.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()


def test_chat_session_and_its_messages_are_shown(client: httpx.Client) -> None:
    sessions = get_json(client, "/v1/sessions")["items"]
    assert [(each["id"], each["title"], each["model"]) for each in sessions] == [(SESSION, "Hello there", "demo")]
    messages = get_json(client, f"/v1/sessions/{SESSION}/messages")["items"]
    assert [(each["role"], each["number"]) for each in messages] == [
        ("user", 1),
        ("assistant", 2),
        ("user", 3),
        ("assistant", 4),
    ]
    assert [each["content"][0]["text"] for each in messages[::2]] == ["Hello there", "How are you?"]
    assert "I am a **script**" in messages[3]["content"][0]["text"]


def test_chat_messages_are_found(client: httpx.Client) -> None:
    hits = get_json(client, "/v1/sessions/search", q="five towns")["items"]
    assert [(each["session"], each["number"]) for each in hits] == [(SESSION, 4), (SESSION, 2)]
    assert [each["number"] for each in get_json(client, "/v1/sessions/search", q="Hello there")["items"]][-1] == 1


def test_chat_continues_after_the_upgrade(client: httpx.Client) -> None:
    sent = client.post(f"/v1/sessions/{SESSION}/messages", json={"content": [{"type": "text", "text": "And now?"}]})
    assert sent.status_code in (200, 201, 202), sent.text

    def answered() -> bool:
        return len(get_json(client, f"/v1/sessions/{SESSION}/messages")["items"]) == 6

    eventually(answered)


def test_runs_results_and_deliverables_are_shown(client: httpx.Client) -> None:
    runs = {each["id"]: each for each in get_json(client, "/v1/runs")["items"]}
    assert {name: (each["name"], each["state"]) for name, each in runs.items()} == {
        SUCCEEDED: ("fixture-run", "succeeded"),
        FAILED: ("failing-run", "failed"),
    }
    result = get_json(client, f"/v1/runs/{SUCCEEDED}")["result"]
    assert (result["endedBy"], result["exitCode"], result["score"]) == ("exit", 0, 1.0)
    assert result["checks"][0]["passed"]
    assert client.get(f"/v1/runs/{SUCCEEDED}/deliverables/report.md").text == "# Report\n"
    assert client.get(f"/v1/runs/{SUCCEEDED}/logs/agent.out").text == "done\n"
    result = get_json(client, f"/v1/runs/{FAILED}")["result"]
    assert (result["endedBy"], result["exitCode"]) == ("exit", 3)
    assert result["missing"][0]["path"] == "/workspace/missing.md"


def test_exchanges_are_listed_shown_and_found(client: httpx.Client) -> None:
    exchanges = get_json(client, "/v1/exchanges")["items"][-len(EXCHANGES) :]
    assert tuple(each["id"] for each in exchanges) == EXCHANGES
    exchange = get_json(client, f"/v1/exchanges/{EXCHANGES[-1]}")
    assert exchange["model"] == "demo" and "I am a **script**" in str(exchange)

    def search() -> Any:
        return get_json(client, "/v1/exchanges", text="demonstration")["items"]

    assert eventually(search)


def test_key_and_pool_are_kept(client: httpx.Client) -> None:
    names = {each["name"] for each in get_json(client, "/v1/keys")["items"]}
    assert {"local", "reader"} <= names
    pools = get_json(client, "/v1/pools")
    assert "hosts" in str(pools)
    assert "snap-f68f5c6141b3b240" in str(get_json(client, "/v1/snapshots"))


def test_second_start_needs_no_migration(old_server: Server) -> None:
    assert schema_revision(old_server.data) == HEAD
    old_server.stop()
    before = schema_rows(old_server.data)
    old_server.start()
    with old_server.client() as client:
        assert get_json(client, f"/v1/runs/{SUCCEEDED}")["state"] == "succeeded"
    assert schema_rows(old_server.data) == before
