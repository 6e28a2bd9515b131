"""Full-text search in the messages of sessions.

The index knows any three letters in a row, so parts of words and languages without spaces are found too. It is SQLite's
own, and made with the first message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import AwareDatetime
from sqlalchemy import Connection, text

from paddock.errors import InvalidInput
from paddock.model.owners import bounded_to
from paddock.model.sandbox import Frozen
from paddock.model.sessions import Content, TextContent
from paddock.store.tables import Instant

LONGEST = 256 * 1024
"""Letters of one message that can be found."""
LONGEST_QUERY = 1000
MOST_TERMS = 32
_SHORTEST = 3
"""Letters that the index can find; fewer are looked for one message after the other."""
_FIRST, _LETTERS = 0xE000, 6400
"""Unicode's private ones."""
_BEFORE, _AFTER = 60, 180
CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS session_index USING fts5(said, tenant, session, tokenize='trigram')"
_THERE = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_index'"


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


def add(connection: Connection, place: int, tenant: str, session: str, content: Sequence[Content]) -> None:
    """Make a message findable by its words and the names of its files."""
    words = "\n".join(part.text if isinstance(part, TextContent) else part.name for part in content)
    words = words[:LONGEST].replace("\0", " ").encode(errors="replace").decode().strip()
    if words and connection.dialect.name == "sqlite":
        connection.exec_driver_sql(CREATE)
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, said, tenant, session) VALUES (?, ?, ?, ?)",
            (place, words, mark(tenant), mark(session)),
        )


def mark(name: str) -> str:
    """Three letters that nobody writes: one term of the index, by which those of others are passed over.

    They may be those of another name too, so what is found has to be looked at.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(chr(_FIRST + int.from_bytes(digest[place : place + 4], "big") % _LETTERS) for place in (0, 4, 8))


def forget(connection: Connection, session_id: str) -> None:
    """Take the messages of a session, which are still there, out of the index."""
    if _is_there(connection):
        connection.exec_driver_sql(
            "DELETE FROM session_index WHERE rowid IN (SELECT place FROM session_messages WHERE session = ?)",
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
    conditions = ["session_index MATCH :match", "s.tenant = :tenant"]
    # Within quotes nothing means anything to FTS5 but the quotes themselves.
    match = [f'tenant : "{mark(tenant)}"', *('said : "{}"'.format(term.replace('"', '""')) for term in long)]
    values: dict[str, object] = {"tenant": str(tenant), "limit": limit}
    for number, term in enumerate(term for term in terms if len(term) < _SHORTEST):
        conditions.append(f"session_index.said LIKE :like{number} ESCAPE '\\'")
        values[f"like{number}"] = f"%{escaped(term)}%"
    subject = bounded_to(tenant)
    if subject is not None:
        conditions.append("(s.subject = :subject OR s.visibility != 'private')")
        values["subject"] = subject
    if session is not None:
        conditions.append("m.session = :session")
        values["session"] = session
        match.append(f'session : "{mark(session)}"')
    values["match"] = " AND ".join(match)
    # CROSS JOIN keeps the order of the tables: newest first out of the index, and stop when there are enough.
    statement = text(
        "SELECT m.session, s.title, m.id AS message, m.number, m.turn, m.role, m.at, session_index.said "  # noqa: S608
        "FROM session_index CROSS JOIN session_messages m ON m.place = session_index.rowid "
        f"CROSS JOIN sessions s ON s.id = m.session WHERE {' AND '.join(conditions)} "
        "ORDER BY session_index.rowid DESC LIMIT :limit"
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
