"""Users of the programs in sandboxes of pools."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("pools", sa.Column("user", sa.String(16), nullable=True))
