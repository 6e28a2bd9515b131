"""Keys that are for a sandbox, run, session or user, with bounds on what they may ask of models."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for name in ("sandbox", "run", "session", "user"):
        op.add_column("keys", sa.Column(name, sa.String(100)))
    for name, empty in (("models", "[]"), ("budget", "{}"), ("limits", "{}")):
        op.add_column("keys", sa.Column(name, sa.JSON(), nullable=False, server_default=empty))
    op.create_index("ix_keys_sandbox", "keys", ["sandbox"])
