"""Exchanges with models, and the messages in them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_name = sa.String(100)


def upgrade() -> None:
    op.create_table(
        "exchange_messages",
        sa.Column("id", _big, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_exchange_messages"),
        sa.UniqueConstraint("digest", name="uq_exchange_messages_digest"),
    )
    op.create_table(
        "exchange_turns",
        sa.Column("id", _big, nullable=False),
        sa.Column("parent", _big, nullable=False),
        sa.Column("message", _big, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_exchange_turns"),
        sa.UniqueConstraint("parent", "message", name="uq_exchange_turns_parent_message"),
    )
    op.create_index("ix_exchange_turns_message", "exchange_turns", ["message"])
    op.create_table(
        "exchanges",
        sa.Column("number", _big, nullable=False),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("key_id", _name, nullable=False),
        sa.Column("sandbox", _name),
        sa.Column("run", _name),
        sa.Column("session", _name),
        sa.Column("user", _name),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("format", sa.String(32), nullable=False),
        sa.Column("operation", sa.String(32), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("stream", sa.Integer(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text()),
        sa.Column("route", sa.Text()),
        sa.Column("provider", sa.Text()),
        sa.Column("provider_kind", sa.String(32)),
        sa.Column("provider_model", sa.Text()),
        sa.Column("provider_format", sa.String(32)),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("input", sa.BigInteger()),
        sa.Column("output", sa.BigInteger()),
        sa.Column("cache_read", sa.BigInteger()),
        sa.Column("cache_write", sa.BigInteger()),
        sa.Column("reasoning", sa.BigInteger()),
        sa.Column("estimated", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Double()),
        sa.Column("first_byte", sa.Double()),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("notes", sa.Text()),
        sa.Column("request_size", sa.BigInteger(), nullable=False),
        sa.Column("response_size", sa.BigInteger(), nullable=False),
        sa.Column("prompt", _big, nullable=False),
        sa.Column("thread", _big, nullable=False),
        sa.Column("fresh", sa.Integer(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_exchanges"),
        sa.UniqueConstraint("tenant", "id", name="uq_exchanges_tenant_id"),
        sqlite_autoincrement=True,
    )
    for column in ("sandbox", "run", "session"):
        is_set = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_exchanges_{column}_id", "exchanges", [column, "id"], sqlite_where=is_set, postgresql_where=is_set
        )
    op.create_index("ix_exchanges_prompt", "exchanges", ["prompt"])
    op.create_index("ix_exchanges_thread", "exchanges", ["thread"])
    op.create_table(
        "exchange_words",
        sa.Column("number", _big, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_exchange_words"),
    )
