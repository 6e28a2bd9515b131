"""The index of what was said in chat sessions knows whose it is."""

from alembic import op

from paddock.store.session_words import CREATE, mark

revision = "0008"
down_revision = "0007"
_AT_ONCE = 500


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    there = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_search'"
    if not connection.exec_driver_sql(there).scalar():
        return
    connection.exec_driver_sql(CREATE)
    said = connection.exec_driver_sql(
        "SELECT f.rowid, f.said, s.tenant, m.session FROM session_search f "
        "JOIN session_messages m ON m.place = f.rowid JOIN sessions s ON s.id = m.session"
    )
    while rows := said.fetchmany(_AT_ONCE):
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, said, tenant, session) VALUES (?, ?, ?, ?)",
            [(place, words, mark(tenant), mark(session)) for place, words, tenant, session in rows],
        )
    connection.exec_driver_sql("DROP TABLE session_search")
