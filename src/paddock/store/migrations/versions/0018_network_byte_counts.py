"""Bytes that sandboxes and tenants have transferred in 24 hours."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "network_byte_counts",
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "owner", name="pk_network_byte_counts"),
    )
