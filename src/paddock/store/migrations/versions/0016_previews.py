"""Previews of ports of sandboxes."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "previews",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("sandbox", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.Text()),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("expires_at", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_previews"),
        sa.UniqueConstraint("sandbox", "port", name="uq_previews_sandbox_port"),
    )
