"""Previews of exchanges."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("exchanges", sa.Column("preview", sa.Text(), nullable=True))
