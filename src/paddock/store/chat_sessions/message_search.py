"""Full-text search in messages of sessions.

The index is a trigram index of SQLite's FTS5, so parts of words and languages without spaces are found too. It is
created with the first message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import AwareDatetime
from sqlalchemy import Connection, text

from paddock.errors import InvalidInput
from paddock.model.owners import private_subject_of_view
from paddock.model.sandbox import FrozenModel
from paddock.model.sessions import MessageContent, TextContent
from paddock.store.tables import UtcTimestamp

LONGEST = 256 * 1024
"""Maximum indexed characters of a message."""
LONGEST_QUERY = 1000
MOST_TERMS = 32
_SHORTEST = 3
"""Minimum query length of the index; shorter queries scan messages."""
_FIRST, _LETTERS = 0xE000, 6400
"""Code points of Unicode's private use area."""
_BEFORE, _AFTER = 60, 180
CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS session_index USING fts5(text, tenant, session, tokenize='trigram')"
_THERE = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_index'"


class MessageHit(FrozenModel):
    """A message that matches a query."""

    session: str
    title: str
    message: str
    number: int
    turn: int
    role: str
    at: AwareDatetime
    excerpt: str


def index_message(
    connection: Connection, position: int, tenant: str, session: str, content: Sequence[MessageContent]
) -> None:
    """Index a message by its text and file names."""
    words = "\n".join(part.text if isinstance(part, TextContent) else part.name for part in content)
    words = words[:LONGEST].replace("\0", " ").encode(errors="replace").decode().strip()
    if words and connection.dialect.name == "sqlite":
        connection.exec_driver_sql(CREATE)
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, text, tenant, session) VALUES (?, ?, ?, ?)",
            (position, words, mark_function(tenant), mark_function(session)),
        )


def mark_function(name: str) -> str:
    """Return an index term of three private-use characters that narrows a search to a tenant or session.

    Different names may share a term, so matches must be verified.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(chr(_FIRST + int.from_bytes(digest[start : start + 4], "big") % _LETTERS) for start in (0, 4, 8))


def remove_session(connection: Connection, session_id: str) -> None:
    """Remove a session's messages from the index. Call it before deleting them."""
    if _is_there(connection):
        connection.exec_driver_sql(
            "DELETE FROM session_index WHERE rowid IN (SELECT position FROM session_messages WHERE session = ?)",
            (session_id,),
        )


def parse_search_terms(query: str) -> list[str]:
    """Split a query into terms. Raises `InvalidInput`."""
    if len(query) > LONGEST_QUERY:
        raise InvalidInput(f"q: use at most {LONGEST_QUERY} characters")
    terms = query.replace("\0", " ").encode(errors="replace").decode().split()
    if not terms:
        raise InvalidInput("q: enter at least one word")
    if len(terms) > MOST_TERMS:
        raise InvalidInput(f"q: enter at most {MOST_TERMS} words")
    return terms


def find_messages(
    connection: Connection, tenant: str, terms: Sequence[str], session: str | None, limit: int
) -> list[MessageHit]:
    """Return messages that contain all terms, ignoring case, newest first."""
    if not _is_there(connection):
        return []
    long = [term for term in terms if len(term) >= _SHORTEST]
    conditions = ["session_index MATCH :match", "s.tenant = :tenant"]
    # Quoting disables FTS5's query syntax.
    match = [f'tenant : "{mark_function(tenant)}"', *('text : "{}"'.format(term.replace('"', '""')) for term in long)]
    values: dict[str, object] = {"tenant": str(tenant), "limit": limit}
    for number, term in enumerate(term for term in terms if len(term) < _SHORTEST):
        conditions.append(f"session_index.text LIKE :like{number} ESCAPE '\\'")
        values[f"like{number}"] = f"%{escape_term(term)}%"
    subject = private_subject_of_view(tenant)
    if subject is not None:
        conditions.append("(s.subject = :subject OR s.visibility != 'private')")
        values["subject"] = subject
    if session is not None:
        conditions.append("m.session = :session")
        values["session"] = session
        match.append(f'session : "{mark_function(session)}"')
    values["match"] = " AND ".join(match)
    # CROSS JOIN fixes the table order: read the index newest first and stop early.
    statement = text(
        "SELECT m.session, s.title, m.id AS message, m.number, m.turn, m.role, m.at, session_index.text "  # noqa: S608
        "FROM session_index CROSS JOIN session_messages m ON m.position = session_index.rowid "
        f"CROSS JOIN sessions s ON s.id = m.session WHERE {' AND '.join(conditions)} "
        "ORDER BY session_index.rowid DESC LIMIT :limit"
    ).columns(at=UtcTimestamp)
    return [_hit(dict(row), terms) for row in connection.execute(statement, values).mappings()]


def _is_there(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite" and bool(connection.exec_driver_sql(_THERE).scalar())


def escape_term(term: str) -> str:
    """Escape LIKE's wildcards."""
    return term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _hit(row: dict[str, object], terms: Sequence[str]) -> MessageHit:
    indexed = str(row.pop("text"))
    low = indexed.lower()
    first = min((position for term in terms if (position := low.find(term.lower())) >= 0), default=0)
    start, end = max(0, first - _BEFORE), first + _AFTER
    excerpt = ("…" if start else "") + indexed[start:end].strip() + ("…" if end < len(indexed) else "")
    return MessageHit.model_validate(row | {"excerpt": excerpt})
