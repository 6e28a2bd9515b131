"""Tree of messages that stores conversations."""

from __future__ import annotations

import json
from collections.abc import Collection

from sqlalchemy import Connection, select, text

from paddock.store.tables import exchange_turns

_PATH = text(
    """
    WITH RECURSIVE path(parent, message, depth) AS (
        SELECT parent, message, 0 FROM exchange_turns WHERE id = :turn
        UNION ALL
        SELECT t.parent, t.message, depth + 1 FROM path JOIN exchange_turns t ON t.id = path.parent
        WHERE depth < :deepest
    )
    SELECT m.body FROM path JOIN exchange_messages m ON m.id = path.message ORDER BY depth DESC
    """
)
_ANCESTORS = text(
    """
    WITH RECURSIVE up(id, parent, message) AS (
        SELECT id, parent, message FROM exchange_turns
        WHERE id IN (SELECT value FROM json_each(:turns))
        UNION
        SELECT t.id, t.parent, t.message FROM up JOIN exchange_turns t ON t.id = up.parent
        LIMIT :most
    )
    SELECT id, parent, message FROM up
    """
)
_DEEPEST = 1 << 62


def find_turn_ancestors(connection: Connection, turns: Collection[int], most: int) -> dict[int, tuple[int, int]]:
    """Return parent and message of turns and their ancestors, at most `most`."""
    found = connection.execute(_ANCESTORS, {"turns": json.dumps(sorted(turns)), "most": most})
    return {row.id: (row.parent, row.message) for row in found}


def list_messages_to_turn(connection: Connection, turn: int, deepest: int = _DEEPEST) -> list[bytes]:
    """Return the messages up to a turn, or the last ones."""
    found = connection.execute(_PATH, {"turn": turn, "deepest": deepest})
    return list(found.scalars())


def delete_unreferenced_turn(connection: Connection, turn: int) -> None:
    """Delete an unreferenced turn, its message if unshared, and unreferenced ancestors."""
    while turn:
        needed = connection.exec_driver_sql(
            "SELECT EXISTS(SELECT 1 FROM exchange_turns WHERE parent = ?)"
            " OR EXISTS(SELECT 1 FROM exchanges WHERE thread = ?) OR EXISTS(SELECT 1 FROM exchanges WHERE prompt = ?)",
            (turn, turn, turn),
        ).scalar()
        row = connection.execute(
            select(exchange_turns.c.parent, exchange_turns.c.message).where(exchange_turns.c.id == turn)
        ).first()
        if needed or row is None:
            return
        connection.execute(exchange_turns.delete().where(exchange_turns.c.id == turn))
        connection.exec_driver_sql(
            "DELETE FROM exchange_messages WHERE id = ? AND NOT EXISTS(SELECT 1 FROM exchange_turns WHERE message = ?)",
            (row.message, row.message),
        )
        turn = row.parent


def find_child_turn(connection: Connection, parent: int, message: int) -> int | None:
    found: int | None = connection.exec_driver_sql(
        "SELECT id FROM exchange_turns WHERE parent = ? AND message = ?", (parent, message)
    ).scalar()
    return found
