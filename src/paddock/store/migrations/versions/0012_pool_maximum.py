"""Upper bounds of pools."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("pools", sa.Column("max_total", sa.Integer(), nullable=True))
