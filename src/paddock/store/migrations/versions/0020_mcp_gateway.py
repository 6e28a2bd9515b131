"""MCP servers and sets of tenants, versions of their tools, records of calls, and the servers of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
_number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("sessions", sa.Column("mcp", sa.JSON()))
    for table in ("mcp_servers", "mcp_sets"):
        op.create_table(
            table,
            sa.Column("tenant", sa.String(63), nullable=False),
            sa.Column("name", sa.String(63), nullable=False),
            sa.Column("document", sa.JSON(), nullable=False),
            sa.Column("created_by", sa.Text()),
            sa.Column("created_at", sa.String(32), nullable=False),
            sa.Column("changed_at", sa.String(32), nullable=False),
            sa.PrimaryKeyConstraint("tenant", "name", name=f"pk_{table}"),
        )
    op.create_table(
        "mcp_tool_versions",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("server", sa.String(63), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("approved", sa.Boolean(), nullable=False),
        sa.Column("approved_by", sa.Text()),
        sa.Column("seen_at", sa.String(32), nullable=False),
        sa.Column("approved_at", sa.String(32)),
        sa.PrimaryKeyConstraint("tenant", "server", "tool", "digest", name="pk_mcp_tool_versions"),
    )
    op.create_table(
        "mcp_calls",
        sa.Column("number", _number, nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("caller_name", sa.Text()),
        sa.Column("agent", sa.Text()),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("server", sa.String(63), nullable=False),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("sandbox", sa.String(63)),
        sa.Column("run", sa.String(63)),
        sa.Column("session", sa.String(63)),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("duration", sa.Double(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("request_size", sa.BigInteger(), nullable=False),
        sa.Column("response_size", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_mcp_calls"),
        sa.UniqueConstraint("id", name="uq_mcp_calls_id"),
        sqlite_autoincrement=True,
    )
    table = "mcp_calls"
    op.create_index(f"ix_{table}_tenant_number", table, ["tenant", "number"])
    op.create_index(f"ix_{table}_tenant_server_number", table, ["tenant", "server", "number"])
    for column in ("run", "session", "sandbox"):
        op.create_index(
            f"ix_{table}_{column}_number", table, [column, "number"], sqlite_where=sa.text(f"{column} IS NOT NULL")
        )
    op.create_index(f"ix_{table}_started_at", table, ["started_at"])
