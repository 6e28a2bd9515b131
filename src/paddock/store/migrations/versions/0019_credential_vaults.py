"""Credential vaults of sandboxes, encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "credential_vaults",
        sa.Column("sandbox", sa.String(63), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sandbox", name="pk_credential_vaults"),
    )
