"""Alembic environment: run migrations in the transaction opened by `migrate_schema`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
