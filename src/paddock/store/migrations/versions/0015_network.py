"""Network policies of sandboxes and sessions, and records of their connections.

The column `network_default` was always empty or `deny`, which the empty policy says too.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
_number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("network", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("sandboxes", sa.Column("network_token", sa.Text()))
    op.add_column("sessions", sa.Column("network", sa.JSON()))
    op.drop_column("sandboxes", "network_default")
    op.create_table(
        "network_connections",
        sa.Column("number", _number, nullable=False),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("sandbox", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("run", sa.String(63)),
        sa.Column("session", sa.String(63)),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("duration", sa.Double(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("address", sa.Text()),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("server_name", sa.Text()),
        sa.Column("sent", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("rule", sa.Text()),
        sa.Column("refusal", sa.String(32)),
        sa.Column("message", sa.Text()),
        sa.PrimaryKeyConstraint("number", name="pk_network_connections"),
        sa.UniqueConstraint("id", name="uq_network_connections_id"),
    )
    table = "network_connections"
    op.create_index(f"ix_{table}_sandbox_started_at_id", table, ["sandbox", "started_at", "id"])
    op.create_index(f"ix_{table}_sandbox_allowed_started_at_id", table, ["sandbox", "allowed", "started_at", "id"])
    op.create_index(f"ix_{table}_started_at", table, ["started_at"])
