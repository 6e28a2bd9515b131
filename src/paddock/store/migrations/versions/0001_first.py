"""Tenants, keys, sandboxes, snapshots, pools and events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_instant = sa.String(32)
_name = sa.String(63)


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", _name, nullable=False),
        sa.Column("created_at", _instant, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tenants"),
    )
    op.create_table(
        "keys",
        sa.Column("id", _name, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("tenant", _name, nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("prefix", sa.String(32), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", _instant, nullable=False),
        sa.Column("expires_at", _instant),
        sa.Column("revoked_at", _instant),
        sa.Column("last_used_at", _instant),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_keys_tenant"),
        sa.UniqueConstraint("digest", name="uq_keys_digest"),
    )
    op.create_index("ix_keys_prefix", "keys", ["prefix"])
    op.create_index("ix_keys_tenant", "keys", ["tenant"])
    op.create_table(
        "sandboxes",
        sa.Column("id", _name, nullable=False),
        sa.Column("tenant", _name, nullable=False),
        sa.Column("backend", _name, nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("created_at", _instant, nullable=False),
        sa.Column("changed_at", _instant, nullable=False),
        sa.Column("expires_at", _instant),
        sa.Column("entrypoint", sa.JSON()),
        sa.Column("env", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("extensions", sa.JSON(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("volumes", sa.JSON(), nullable=False),
        sa.Column("snapshot", _name),
        sa.Column("pool", _name),
        sa.Column("network_default", sa.Text()),
        sa.Column("request_key", sa.Text()),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sandboxes"),
        sa.UniqueConstraint("tenant", "request_key", name="uq_sandboxes_tenant_request_key"),
    )
    op.create_index("ix_sandboxes_tenant_created_at", "sandboxes", ["tenant", "created_at"])
    op.create_index("ix_sandboxes_state_changed_at", "sandboxes", ["state", "changed_at"])
    op.create_index("ix_sandboxes_expires_at", "sandboxes", ["expires_at"])
    op.create_table(
        "snapshots",
        sa.Column("id", _name, nullable=False),
        sa.Column("tenant", _name, nullable=False),
        sa.Column("backend", _name, nullable=False),
        sa.Column("sandbox_id", _name, nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("created_at", _instant, nullable=False),
        sa.Column("changed_at", _instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
    )
    op.create_index("ix_snapshots_tenant_created_at", "snapshots", ["tenant", "created_at"])
    op.create_index("ix_snapshots_sandbox_id", "snapshots", ["sandbox_id"])
    op.create_table(
        "pools",
        sa.Column("tenant", _name, nullable=False),
        sa.Column("name", _name, nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("limits", sa.JSON(), nullable=False),
        sa.Column("created_at", _instant, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_pools"),
    )
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream", sa.String(128), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("type", _name, nullable=False),
        sa.Column("tenant", _name, nullable=False),
        sa.Column("at", _instant, nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_events"),
        sa.UniqueConstraint("stream", "number", name="uq_events_stream_number"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_tenant_sequence", "events", ["tenant", "sequence"])
    op.create_index("ix_events_at", "events", ["at"])
