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

MAX_INDEXED_CHARACTERS = 256 * 1024
"""Maximum indexed characters of a message."""
MAX_QUERY_CHARACTERS = 1000
MAX_QUERY_TERMS = 32
_MIN_TERM_CHARACTERS = 3
"""Minimum query length of the index; shorter queries scan messages."""
_FIRST_CODE_POINT, _CODE_POINTS = 0xE000, 6400
"""Code points of Unicode's private use area."""
_EXCERPT_BEFORE, _EXCERPT_AFTER = 60, 180
CREATE_INDEX = "CREATE VIRTUAL TABLE IF NOT EXISTS session_index USING fts5(text, tenant, session, tokenize='trigram')"
_INDEX_EXISTS = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_index'"


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


def index_session_message(
    connection: Connection, position: int, tenant: str, session: str, content: Sequence[MessageContent]
) -> None:
    """Index a message by its text and file names."""
    words = "\n".join(part.text if isinstance(part, TextContent) else part.name for part in content)
    words = words[:MAX_INDEXED_CHARACTERS].replace("\0", " ").encode(errors="replace").decode().strip()
    if words and connection.dialect.name == "sqlite":
        connection.exec_driver_sql(CREATE_INDEX)
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, text, tenant, session) VALUES (?, ?, ?, ?)",
            (position, words, index_term_for_name(tenant), index_term_for_name(session)),
        )


def index_term_for_name(name: str) -> str:
    """Return an index term of three private-use characters that narrows a search to a tenant or session.

    Different names may share a term, so matches must be verified.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(
        chr(_FIRST_CODE_POINT + int.from_bytes(digest[start : start + 4], "big") % _CODE_POINTS) for start in (0, 4, 8)
    )


def remove_session_from_index(connection: Connection, session_id: str) -> None:
    """Remove a session's messages from the index. Call it before deleting them."""
    if _index_exists(connection):
        connection.exec_driver_sql(
            "DELETE FROM session_index WHERE rowid IN (SELECT position FROM session_messages WHERE session = ?)",
            (session_id,),
        )


def parse_search_terms(query: str) -> list[str]:
    """Split a query into terms. Raises `InvalidInput`."""
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InvalidInput(f"q: use at most {MAX_QUERY_CHARACTERS} characters")
    terms = query.replace("\0", " ").encode(errors="replace").decode().split()
    if not terms:
        raise InvalidInput("q: enter at least one word")
    if len(terms) > MAX_QUERY_TERMS:
        raise InvalidInput(f"q: enter at most {MAX_QUERY_TERMS} words")
    return terms


def search_indexed_messages(
    connection: Connection, tenant: str, terms: Sequence[str], session: str | None, limit: int
) -> list[MessageHit]:
    """Return messages that contain all terms, ignoring case, newest first."""
    if not _index_exists(connection):
        return []
    long_terms = [term for term in terms if len(term) >= _MIN_TERM_CHARACTERS]
    conditions = ["session_index MATCH :match", "s.tenant = :tenant"]
    # Quoting disables FTS5's query syntax.
    match = [
        f'tenant : "{index_term_for_name(tenant)}"',
        *('text : "{}"'.format(term.replace('"', '""')) for term in long_terms),
    ]
    values: dict[str, object] = {"tenant": str(tenant), "limit": limit}
    for number, term in enumerate(term for term in terms if len(term) < _MIN_TERM_CHARACTERS):
        conditions.append(f"session_index.text LIKE :like{number} ESCAPE '\\'")
        values[f"like{number}"] = f"%{escape_like_wildcards(term)}%"
    subject = private_subject_of_view(tenant)
    if subject is not None:
        conditions.append("(s.subject = :subject OR s.visibility != 'private')")
        values["subject"] = subject
    if session is not None:
        conditions.append("m.session = :session")
        values["session"] = session
        match.append(f'session : "{index_term_for_name(session)}"')
    values["match"] = " AND ".join(match)
    # CROSS JOIN fixes the table order: read the index newest first and stop early.
    statement = text(
        "SELECT m.session, s.title, m.id AS message, m.number, m.turn, m.role, m.at, session_index.text "  # noqa: S608
        "FROM session_index CROSS JOIN session_messages m ON m.position = session_index.rowid "
        f"CROSS JOIN sessions s ON s.id = m.session WHERE {' AND '.join(conditions)} "
        "ORDER BY session_index.rowid DESC LIMIT :limit"
    ).columns(at=UtcTimestamp)
    return [_search_hit(dict(row), terms) for row in connection.execute(statement, values).mappings()]


def _index_exists(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite" and bool(connection.exec_driver_sql(_INDEX_EXISTS).scalar())


def escape_like_wildcards(term: str) -> str:
    """Escape LIKE's wildcards."""
    return term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _search_hit(row: dict[str, object], terms: Sequence[str]) -> MessageHit:
    indexed = str(row.pop("text"))
    lowered = indexed.lower()
    first = min((position for term in terms if (position := lowered.find(term.lower())) >= 0), default=0)
    start, end = max(0, first - _EXCERPT_BEFORE), first + _EXCERPT_AFTER
    excerpt = ("…" if start else "") + indexed[start:end].strip() + ("…" if end < len(indexed) else "")
    return MessageHit.model_validate(row | {"excerpt": excerpt})
