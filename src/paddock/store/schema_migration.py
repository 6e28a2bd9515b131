"""Migrate a database to the current schema, in one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect

from paddock.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0021"
"""The newest revision, as a constant so that an up-to-date database opens without loading alembic."""


def migrate_schema(engine: Engine, path: Path, location: str = "paddock.store:migrations", head: str = HEAD) -> None:
    """Apply what is missing; on failure the database is left as it was.

    Raises `ConfigError` when a newer Paddock made the database.
    """
    with engine.connect().execution_options(writes=True) as connection:
        with connection.begin():
            revision = database_revision(connection)
        if revision == head:
            return
        driver: Any = connection.connection.driver_connection
        connection.rollback()
        # Rebuilding a table that others point to needs this off, and it cannot be changed inside a transaction.
        driver.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                _upgrade(connection, path, location, head)
        finally:
            driver.execute("PRAGMA foreign_keys = ON")


def database_revision(connection: Connection) -> str | None:
    """Return the database's revision, `None` for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision


def alembic_config(location: str = "paddock.store:migrations") -> Config:
    """Return alembic's configuration."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", location)
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection, path: Path, location: str, head: str) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    config = alembic_config(location)
    # Read again under the lock: another process may have migrated first.
    revision = database_revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise ConfigError(
            f"{path} was made by a newer Paddock (schema {revision}, this one knows up to {head}); "
            "upgrade Paddock or use another data directory."
        )
    config.attributes["connection"] = connection
    command.upgrade(config, head)
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken:
        raise Unavailable(f"Upgrading {path} would leave {broken[0]} pointing at nothing; it was left as it was.")
