"""Sums of model usage by day, key, model, provider and sandbox."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_DIMENSIONS = {"tenant": 63, "day": 10, "key_id": 100, "model": 200, "provider": 63, "sandbox": 100}
_COUNTED = ("requests", "errors", "refused", "input", "output", "cache_read", "cache_write", "reasoning")


def upgrade() -> None:
    op.create_table(
        "usage",
        *(sa.Column(name, sa.String(length), nullable=False) for name, length in _DIMENSIONS.items()),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTED),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.Column("unpriced", sa.BigInteger(), nullable=False),
        sa.Column("estimated", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(*_DIMENSIONS, name="pk_usage"),
    )
    op.create_index("ix_usage_key_id", "usage", ["key_id"])
