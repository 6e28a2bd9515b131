"""Chat sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    moment = sa.String(32)
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("agent", sa.String(63), nullable=False),
        sa.Column("engine", sa.String(63), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("budget", sa.BigInteger()),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("usage", sa.JSON(), nullable=False),
        sa.Column("sandboxes", sa.JSON(), nullable=False),
        sa.Column("origin", sa.JSON()),
        sa.Column("created_by", sa.Text()),
        sa.Column("request_key", sa.Text()),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("changed_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("tenant", "request_key", name="uq_sessions_tenant_request_key"),
    )
    op.create_index("ix_sessions_tenant_changed_at", "sessions", ["tenant", "changed_at"])
    op.create_index("ix_sessions_state", "sessions", ["state"])
    op.create_table(
        "session_messages",
        sa.Column("place", number, nullable=False),
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("thought", sa.Text(), nullable=False),
        sa.Column("calls", sa.JSON(), nullable=False),
        sa.Column("call_id", sa.String(100)),
        sa.Column("cut", sa.Text()),
        sa.Column("by", sa.Text()),
        sa.Column("at", moment, nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_session_messages"),
        sa.UniqueConstraint("session", "id", name="uq_session_messages_session_id"),
        sa.UniqueConstraint("session", "number", name="uq_session_messages_session_number"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "session_calls",
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("malformed", sa.Text()),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(63)),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("sandbox_id", sa.String(63)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("result", sa.JSON()),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("changed_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("session", "id", name="pk_session_calls"),
    )
    op.create_index("ix_session_calls_session_turn", "session_calls", ["session", "turn"])
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.String(100), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(63)),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("choices", sa.JSON(), nullable=False),
        sa.Column("actions", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("edited", sa.JSON()),
        sa.Column("reason", sa.Text()),
        sa.Column("always", sa.String(16)),
        sa.Column("decided_by", sa.Text()),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment),
        sa.Column("decided_at", moment),
        sa.Column("schema", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name="pk_approvals"),
        sa.UniqueConstraint("session", "call_id", name="uq_approvals_session_call_id"),
    )
    op.create_index("ix_approvals_tenant_state", "approvals", ["tenant", "state"])
    op.create_index("ix_approvals_state_expires_at", "approvals", ["state", "expires_at"])
    op.create_table(
        "session_replies",
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("message_id", sa.String(100), nullable=False),
        sa.Column("finish", sa.String(32), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session", "turn", "digest", name="pk_session_replies"),
    )
    op.create_table(
        "engine_states",
        sa.Column("session", sa.String(63), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("changed_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("session", name="pk_engine_states"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("thread", sa.String(100), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("parent", sa.String(100)),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("details", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "namespace", "id", name="pk_checkpoints"),
    )
    op.create_table(
        "checkpoint_writes",
        sa.Column("thread", sa.String(100), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("checkpoint", sa.String(100), nullable=False),
        sa.Column("task", sa.String(100), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread", "namespace", "checkpoint", "task", "place", name="pk_checkpoint_writes"),
    )
