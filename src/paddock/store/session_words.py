"""Full-text search in the messages of sessions.

The index knows any three letters in a row, so parts of words and languages without spaces are found too. It is SQLite's
own, and made with the first message.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import AwareDatetime
from sqlalchemy import Connection, text

from paddock.errors import InvalidInput
from paddock.model.sandbox import Frozen
from paddock.model.sessions import Content, TextContent
from paddock.store.tables import Instant

LONGEST = 256 * 1024
"""Letters of one message that can be found."""
LONGEST_QUERY = 1000
MOST_TERMS = 32
_SHORTEST = 3
"""Letters that the index can find; fewer are looked for one message after the other."""
_BEFORE, _AFTER = 60, 180
_CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS session_search USING fts5(said, tokenize='trigram')"
_THERE = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_search'"


class Hit(Frozen):
    """A message in which something was found."""

    session: str
    title: str
    message: str
    number: int
    turn: int
    role: str
    at: AwareDatetime
    excerpt: str


def add(connection: Connection, place: int, content: Sequence[Content]) -> None:
    """Make a message findable by its words and the names of its files."""
    words = "\n".join(part.text if isinstance(part, TextContent) else part.name for part in content)
    words = words[:LONGEST].replace("\0", " ").encode(errors="replace").decode().strip()
    if words and connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_CREATE)
        connection.exec_driver_sql("INSERT INTO session_search (rowid, said) VALUES (?, ?)", (place, words))


def forget(connection: Connection, session_id: str) -> None:
    """Take the messages of a session, which are still there, out of the index."""
    if _is_there(connection):
        connection.exec_driver_sql(
            "DELETE FROM session_search WHERE rowid IN (SELECT place FROM session_messages WHERE session = ?)",
            (session_id,),
        )


def terms_of(query: str) -> list[str]:
    """The words of what somebody typed. Raises `InvalidInput`."""
    if len(query) > LONGEST_QUERY:
        raise InvalidInput(f"q: use at most {LONGEST_QUERY} letters")
    terms = query.replace("\0", " ").encode(errors="replace").decode().split()
    if not terms:
        raise InvalidInput("q: give at least one word to look for")
    if len(terms) > MOST_TERMS:
        raise InvalidInput(f"q: give at most {MOST_TERMS} words")
    return terms


def find(connection: Connection, tenant: str, terms: Sequence[str], session: str | None, limit: int) -> list[Hit]:
    """Messages that have all the words in them, whether small or capital, newest first."""
    if not _is_there(connection):
        return []
    long = [term for term in terms if len(term) >= _SHORTEST]
    conditions = ["s.tenant = :tenant"]
    values: dict[str, object] = {"tenant": tenant, "limit": limit}
    if long:
        # Within quotes nothing means anything to FTS5 but the quotes themselves.
        conditions.append("session_search MATCH :match")
        values["match"] = " AND ".join('"{}"'.format(term.replace('"', '""')) for term in long)
    for number, term in enumerate(term for term in terms if len(term) < _SHORTEST):
        conditions.append(f"session_search.said LIKE :like{number} ESCAPE '\\'")
        values[f"like{number}"] = f"%{escaped(term)}%"
    if session is not None:
        conditions.append("m.session = :session")
        values["session"] = session
    # CROSS JOIN keeps the order of the tables: newest first out of the index, and stop when there are enough.
    statement = text(
        "SELECT m.session, s.title, m.id AS message, m.number, m.turn, m.role, m.at, session_search.said "  # noqa: S608
        "FROM session_search CROSS JOIN session_messages m ON m.place = session_search.rowid "
        f"CROSS JOIN sessions s ON s.id = m.session WHERE {' AND '.join(conditions)} "
        "ORDER BY session_search.rowid DESC LIMIT :limit"
    ).columns(at=Instant)
    return [_hit(dict(row), terms) for row in connection.execute(statement, values).mappings()]


def _is_there(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite" and bool(connection.exec_driver_sql(_THERE).scalar())


def escaped(term: str) -> str:
    """A word in which nothing means anything to LIKE."""
    return term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _hit(row: dict[str, object], terms: Sequence[str]) -> Hit:
    said = str(row.pop("said"))
    low = said.lower()
    first = min((place for term in terms if (place := low.find(term.lower())) >= 0), default=0)
    start, end = max(0, first - _BEFORE), first + _AFTER
    excerpt = ("…" if start else "") + said[start:end].strip() + ("…" if end < len(said) else "")
    return Hit.model_validate(row | {"excerpt": excerpt})
