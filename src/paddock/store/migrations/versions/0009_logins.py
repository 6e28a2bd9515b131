"""Browsers that are logged in."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "logins",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(63), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("used_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_logins"),
    )
    op.create_index("ix_logins_key_id", "logins", ["key_id"])
