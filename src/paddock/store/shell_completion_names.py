"""Names for shell completion, read with the standard library only to be fast."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

BUSY_SECONDS = 0.1
_QUERIES = {
    "sandbox": """
        SELECT json_extract(metadata, '$.name'), id FROM sandboxes
        WHERE tenant = ? AND state NOT IN ('Terminated', 'Failed') ORDER BY created_at DESC LIMIT 200
    """,
    "run": "SELECT name, id FROM runs WHERE tenant = ? ORDER BY created_at DESC LIMIT 100",
    "session": "SELECT NULL, id FROM sessions WHERE tenant = ? ORDER BY changed_at DESC LIMIT 100",
    "snapshot": "SELECT name, id FROM snapshots WHERE tenant = ? ORDER BY created_at DESC LIMIT 200",
    "pool": "SELECT name, NULL FROM pools WHERE tenant = ? ORDER BY name LIMIT 200",
    "key": """
        SELECT NULL, id FROM keys
        WHERE tenant = ? AND revoked_at IS NULL AND sandbox IS NULL AND session IS NULL ORDER BY name LIMIT 200
    """,
}


def read_completion_names(database: Path, kind: str, tenant: str) -> Iterator[str]:
    """Yield names and ids of a tenant's objects of a type, newest first. Raises `sqlite3.Error`."""
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
        for row in connection.execute(_QUERIES[kind], (tenant,)).fetchall():
            yield from (text for text in row if text)
