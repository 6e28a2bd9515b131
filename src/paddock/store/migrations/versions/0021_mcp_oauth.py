"""Sign-ins at MCP servers, encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "mcp_oauth_tokens",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("subject", sa.String(110), nullable=False),
        sa.Column("server", sa.String(63), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "subject", "server", "url", name="pk_mcp_oauth_tokens"),
    )
    op.create_table(
        "mcp_oauth_clients",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "issuer", "redirect_uri", name="pk_mcp_oauth_clients"),
    )
