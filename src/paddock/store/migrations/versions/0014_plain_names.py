"""Rename columns and stored values that say too little, and rebuild the search indexes under plain column names.

`place` becomes `position` and the indexed `said` becomes `text`. Values of runs that begin with `box` say `sandbox`.
The exchange index keeps no text, so the server fills it again in the background.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
_ENDED_BY = {"box_died": "sandbox_died", "box_silent": "sandbox_silent", "box_frozen": "sandbox_frozen"}
_SESSION_INDEX = "CREATE VIRTUAL TABLE session_index USING fts5(text, tenant, session, tokenize='trigram')"
_EXCHANGE_SEARCH = """
    CREATE VIRTUAL TABLE exchange_search
    USING fts5(text, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')
"""
_BATCH = 500


def upgrade() -> None:
    connection = op.get_bind()
    # SQLite renames a column in place; a rebuilt table would lose the count of its rows' numbers.
    for table in ("session_messages", "checkpoint_writes"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN place TO position")
    runs = sa.table("runs", sa.column("id"), sa.column("result", sa.JSON), sa.column("progress", sa.JSON))
    old = sa.or_(*(sa.cast(column, sa.Text).like("%box%") for column in (runs.c.result, runs.c.progress)))
    # `sandbox` in the evidence was the text of a broken collection.
    old = sa.or_(old, *(sa.cast(column, sa.Text).like('%"sandbox": "%') for column in (runs.c.result, runs.c.progress)))
    _rewrite(connection, runs, runs.c.id, old)
    events = sa.table("events", sa.column("sequence"), sa.column("type"), sa.column("data", sa.JSON))
    old = sa.and_(events.c.type.like("run.%"), sa.cast(events.c.data, sa.Text).like('%"box%'))
    _rewrite(connection, events, events.c.sequence, old)
    if connection.dialect.name == "sqlite":
        _rename_search_columns(connection)


def _rewrite(connection: sa.Connection, table: Any, key: Any, old: Any) -> None:
    columns = [column for column in table.c if isinstance(column.type, sa.JSON)]
    last = None
    while True:
        after = old if last is None else sa.and_(old, key > last)
        rows = connection.execute(sa.select(key, *columns).where(after).order_by(key).limit(_BATCH)).all()
        for row in rows:
            last = row[0]
            values = {column.name: _renamed(value) for column, value in zip(columns, row[1:], strict=True)}
            if list(values.values()) != list(row[1:]):
                changed = {name: sa.null() if value is None else value for name, value in values.items()}
                connection.execute(sa.update(table).where(key == last).values(**changed))
        if len(rows) < _BATCH:
            return


def _renamed(value: Any) -> Any:
    """Rename stored values in documents with `ended_by`, at any depth."""
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {name: _renamed(each) for name, each in value.items()}
    if isinstance(ended_by := renamed.get("ended_by"), str):
        renamed["ended_by"] = _ENDED_BY.get(ended_by, ended_by)
        if isinstance(evidence := renamed.get("evidence"), dict):
            renamed["evidence"] = _renamed_evidence(evidence)
    return renamed


def _renamed_evidence(evidence: dict[str, Any]) -> dict[str, Any]:
    renamed = dict(evidence)
    collection = renamed.get("sandbox")
    if isinstance(collection, str) and not collection.startswith("sb-"):
        renamed["collection"] = renamed.pop("sandbox")
    if "box" in renamed:
        renamed["sandbox"] = renamed.pop("box")
    return renamed


def _rename_search_columns(connection: sa.Connection) -> None:
    if _exists(connection, "session_index"):
        connection.exec_driver_sql("ALTER TABLE session_index RENAME TO session_index_before")
        connection.exec_driver_sql(_SESSION_INDEX)
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, text, tenant, session) "
            "SELECT rowid, said, tenant, session FROM session_index_before"
        )
        connection.exec_driver_sql("DROP TABLE session_index_before")
    if _exists(connection, "exchange_search"):
        connection.exec_driver_sql("DROP TABLE exchange_search")
        connection.exec_driver_sql(_EXCHANGE_SEARCH)
        connection.exec_driver_sql("DELETE FROM exchange_words")


def _exists(connection: sa.Connection, table: str) -> bool:
    return bool(connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema WHERE name = ?", (table,)).scalar())
