"""Store behaviour on failures of the machine, the disk or other programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from paddock.errors import AlreadyRunning, ConfigError, Unavailable
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.store import database, tables
from paddock.store.data_lock import DataDirectoryLock
from paddock.store.database import Store, Work
from paddock.store.schema_migration import HEAD, alembic_config, migrate_schema

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("migrated")]

WRITER = """
import asyncio, pathlib, sys
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.store.database import Store

async def one(log, stream):
    while True:
        event = await log.append(stream, EventType.SANDBOX_RENEWED, {"padding": "x" * 500}, tenant="t")
        sys.stdout.write(f"{event.sequence} {stream} {event.number}\\n")
        sys.stdout.flush()

async def main():
    log = await EventLog.open(await Store.open(pathlib.Path(sys.argv[1])))
    await asyncio.gather(*(one(log, f"s/{i}") for i in range(8)))

asyncio.run(main())
"""


def acknowledged_before_kill(path: Path) -> set[str]:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        lines = [writer.stdout.readline() for _ in range(200)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
    return {line for line in lines if line.endswith("\n")}


async def test_acknowledged_writes_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    for _ in range(3):
        acknowledged = acknowledged_before_kill(path)
        assert len(acknowledged) >= 200
        async with await Store.open(path) as store:
            kept = await (await EventLog.open(store)).read(limit=10**6)
        rows = {f"{event.sequence} {event.stream} {event.number}\n" for event in kept}
        assert acknowledged <= rows
        numbers: dict[str, list[int]] = {}
        for event in kept:
            numbers.setdefault(event.stream, []).append(event.number)
        assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


@contextlib.contextmanager
def tiny_disk(mount_point: Path) -> Iterator[Path]:
    mount_point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


async def fill(log: EventLog) -> int:
    """Append until the disk is full, and say how many were acknowledged."""
    for count in range(10_000):
        try:
            await log.append("s", EventType.DISK_FULL, {"padding": "x" * 5000}, tenant="t")
        except Unavailable as error:
            if "full" not in error.message:
                raise
            return count
    raise AssertionError("the disk never filled up")


async def test_full_disk_is_reported_and_survived(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(bytes(200_000))
        async with await Store.open(disk / "p.db") as store:
            log = await EventLog.open(store)
            acknowledged = await fill(log)
            assert len(await log.read("s", limit=10**6)) == acknowledged
            together = [log.append("s", EventType.DISK_FULL, {"padding": "x" * 5000}, tenant="t") for _ in range(5)]
            outcomes = await asyncio.gather(*together, return_exceptions=True)
            assert any(isinstance(outcome, Unavailable) for outcome in outcomes)
            (disk / "ballast").unlink()
            event = await log.append("s", EventType.DISK_FULL, tenant="t")
            assert [one.number for one in await log.read("s", limit=10**6)] == list(range(1, event.number + 1))


async def test_a_file_size_limit_is_reported(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        log = await EventLog.open(store)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        try:
            acknowledged = await fill(log)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert len(await log.read("s", limit=10**6)) == acknowledged
        assert (await log.append("s", EventType.DISK_FULL, tenant="t")).number == acknowledged + 1


async def test_check_fails_while_writes_fail(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        log = await EventLog.open(store)
        await store.check()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        try:
            await fill(log)
            with pytest.raises(Unavailable, match="full"):
                await store.check()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        # No write happened since; the store's own probe write detects the recovery.
        store._probe_at = 0.0
        await store.check()


async def test_check_writes_nothing_without_failures(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        written = (tmp_path / "p.db-wal").stat()
        for _ in range(3):
            await store.check()
        assert (tmp_path / "p.db-wal").stat().st_mtime_ns == written.st_mtime_ns


async def test_check_reports_missing_database(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    async with await Store.open(path) as store:
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(Unavailable, match="is gone"):
            await store.check()
        path.touch()
        with pytest.raises(Unavailable, match="replaced"):
            await store.check()
        path.unlink()
        (tmp_path / "elsewhere").rename(path)
        await store.check()


async def test_write_waits_for_other_writer_then_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.3)
    path = tmp_path / "p.db"
    async with await Store.open(path) as store:
        log = await EventLog.open(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="Another program is writing"):
            await log.append("s", EventType.OUT_OF_MEMORY, tenant="t")
        assert await log.read() == []
        waiting = asyncio.create_task(log.append("s", EventType.OUT_OF_MEMORY, tenant="t"))
        await asyncio.sleep(0)
        other.execute("COMMIT")
        other.close()
        assert (await waiting).number == 1


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (None, "ZeroDivisionError"),
        ("INSERT INTO t VALUES (0)", "Conflict"),
        ("INSERT INTO nowhere VALUES (0)", "Unavailable"),
    ],
)
async def test_failed_write_does_not_affect_others_in_its_commit(
    tmp_path: Path, statement: str | None, error: str
) -> None:
    def add(number: int) -> Work[int]:
        def work(connection: Connection) -> int:
            connection.execute(text("INSERT INTO t VALUES (:n)"), {"n": number})
            if number == 3:
                connection.execute(text(statement)) if statement else 1 / 0
            return number

        return work

    async with await Store.open(tmp_path / "p.db") as store:
        await store.write(lambda connection: connection.execute(text("CREATE TABLE t (n INTEGER UNIQUE)")).rowcount)
        released = threading.Event()
        blocking = store.submit(lambda _: released.wait(10))
        together = [store.submit(add(number)) for number in range(6)]
        released.set()
        assert blocking.result(10)
        outcomes = await asyncio.gather(*map(asyncio.wrap_future, together), return_exceptions=True)
        assert [type(one).__name__ if isinstance(one, Exception) else one for one in outcomes] == [0, 1, 2, error, 4, 5]
        kept = await store.read(lambda connection: connection.execute(text("SELECT n FROM t ORDER BY n")).all())
        assert [number for (number,) in kept] == [0, 1, 2, 4, 5]


async def test_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(b"this is not a database " * 500)
    before = path.read_bytes()
    with pytest.raises(Unavailable, match="is not a database"):
        await Store.open(path)
    assert path.read_bytes() == before


async def test_damaged_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    async with await Store.open(path) as store:
        log = await EventLog.open(store)
        for _ in range(50):
            await log.append("s", EventType.OUT_OF_MEMORY, {"padding": "x" * 500}, tenant="t")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(Unavailable, match="is damaged"):
        async with await Store.open(path) as store:
            await (await EventLog.open(store)).read("s")


async def test_unusable_database_paths_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be used"):
        await Store.open(tmp_path / "file" / "p.db")
    with pytest.raises(ConfigError, match="SQLite"):
        await Store.open("postgresql://host/db")


async def test_database_of_newer_paddock_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    await (await Store.open(path)).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
        other.commit()
    with pytest.raises(ConfigError, match=rf"newer Paddock \(schema 9999, this one knows up to {HEAD}\)"):
        await Store.open(path)


async def test_failed_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    await (await Store.open(path)).close()
    scripts = tmp_path / "migrations"
    source = Path(database.__file__).parent / "migrations"
    (scripts / "versions").mkdir(parents=True)
    (scripts / "env.py").write_text((source / "env.py").read_text())
    for script in (source / "versions").glob("0*.py"):
        (scripts / "versions" / script.name).write_text(script.read_text())
    (scripts / "versions/9999_bad.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '9999'\ndown_revision = '{HEAD}'\n"
        "def upgrade():\n    op.create_table('extra', sa.Column('a', sa.Integer))\n    op.drop_table('events')\n"
        "    op.execute('INSERT INTO nowhere VALUES (1)')\n"
    )

    def schema() -> list[tuple[str]]:
        with contextlib.closing(sqlite3.connect(path)) as other:
            found: list[tuple[str]] = other.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
            return [*found, *other.execute("SELECT version_num FROM alembic_version")]

    before = schema()
    engine = database._engine(path)
    with pytest.raises(Exception, match="nowhere"):
        migrate_schema(engine, path, str(scripts), "9999")
    engine.dispose()
    assert schema() == before
    await (await Store.open(path)).close()


async def test_migrations_produce_the_schema_of_tables() -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == HEAD
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        from alembic import command

        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    engine.dispose()


async def test_schema_is_valid_for_postgresql() -> None:
    for table in tables.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]


async def test_database_files_are_readable_by_owner_only(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "p.db") as store:
        await EventLog.open(store)
        modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / name for name in os.listdir(tmp_path))}
    assert modes == {0o600}


async def test_closed_store_is_reported(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "p.db")
    log = await EventLog.open(store)
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await log.append("s", EventType.OUT_OF_MEMORY, tenant="t")
    with pytest.raises(Unavailable, match="closed"):
        await log.read()


HOLDER = """
import pathlib, sys
from paddock.store.database import Work
from paddock.store.data_lock import DataDirectoryLock
lock = DataDirectoryLock.acquire(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_data_directory_is_locked_until_first_server_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunning, match=rf"pid {first.pid}\b"):
            DataDirectoryLock.acquire(tmp_path)
        first.kill()
    with DataDirectoryLock.acquire(tmp_path):
        assert (tmp_path / "server.lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(AlreadyRunning):
            DataDirectoryLock.acquire(tmp_path)
    DataDirectoryLock.acquire(tmp_path).release()
