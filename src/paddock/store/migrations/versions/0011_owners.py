"""Add owner and visibility to sessions, runs, sandboxes and snapshots.

What is there already stays visible to its whole tenant. Where the name of the key that began a session is that of one
key only, the session gets its owner, who can then make it private.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
_ORDERED = {"sandboxes": "created_at", "snapshots": "created_at", "runs": "created_at", "sessions": "changed_at"}


def upgrade() -> None:
    for table, moment in _ORDERED.items():
        op.add_column(table, sa.Column("subject", sa.String(110)))
        if table != "sessions":
            op.add_column(table, sa.Column("created_by", sa.Text))
        op.add_column(table, sa.Column("visibility", sa.String(16), nullable=False, server_default="tenant"))
        op.drop_index(f"ix_{table}_tenant_{moment}", table)
        op.create_index(
            f"ix_{table}_tenant_{moment}_subject_visibility", table, ["tenant", moment, "subject", "visibility"]
        )
    op.add_column("events", sa.Column("audience", sa.String(110)))
    op.drop_index("ix_events_tenant_sequence", "events")
    op.create_index("ix_events_tenant_sequence_audience", "events", ["tenant", "sequence", "audience"])
    op.add_column("exchanges", sa.Column("subject", sa.String(110)))
    op.create_index("ix_exchanges_visible", "exchanges", ["tenant", "id", "subject", "session", "run", "sandbox"])
    op.add_column("usage", sa.Column("subject", sa.String(110)))
    op.add_column("keys", sa.Column("owner", sa.String(110)))
    op.execute(
        "UPDATE sessions SET subject = ("
        ' SELECT CASE WHEN count(*) = 1 THEN max(CASE WHEN k."user" IS NULL THEN k.id ELSE \'user:\' || k."user" END)'
        " END FROM keys k WHERE k.tenant = sessions.tenant AND k.name = sessions.created_by AND k.sandbox IS NULL)"
    )
