"""Tools that the clients of sessions run themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "client_tools",
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("tools", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("session", name="pk_client_tools"),
    )
