"""Runs of tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    moment = sa.String(32)
    op.create_table(
        "runs",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("group", sa.String(100)),
        sa.Column("task", sa.JSON(), nullable=False),
        sa.Column("task_name", sa.String(63), nullable=False),
        sa.Column("concurrency", sa.Integer()),
        sa.Column("inputs", sa.String(100)),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("stage", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("sandbox_id", sa.String(63)),
        sa.Column("model", sa.Text()),
        sa.Column("scripted", sa.Boolean(), nullable=False),
        sa.Column("request_key", sa.Text()),
        sa.Column("owner", sa.String(63)),
        sa.Column("owned_until", moment),
        sa.Column("cancelling", sa.Text()),
        sa.Column("hard", sa.Boolean(), nullable=False),
        sa.Column("not_before", moment),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("changed_at", moment, nullable=False),
        sa.Column("started_at", moment),
        sa.Column("ended_at", moment),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("tenant", "request_key", name="uq_runs_tenant_request_key"),
    )
    op.create_index("ix_runs_tenant_created_at", "runs", ["tenant", "created_at"])
    op.create_index("ix_runs_state_created_at", "runs", ["state", "created_at"])
    op.create_index("ix_runs_group", "runs", ["group"])
