"""Add tenant and session to the search index of chat messages."""

from alembic import op

from paddock.store.chat_sessions.message_search import index_term_for_name

revision = "0008"
down_revision = "0007"
_AT_ONCE = 500
_CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS session_index USING fts5(said, tenant, session, tokenize='trigram')"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    exists_query = "SELECT count(*) FROM sqlite_schema WHERE name = 'session_search'"
    if not connection.exec_driver_sql(exists_query).scalar():
        return
    connection.exec_driver_sql(_CREATE)
    messages = connection.exec_driver_sql(
        "SELECT f.rowid, f.said, s.tenant, m.session FROM session_search f "
        "JOIN session_messages m ON m.place = f.rowid JOIN sessions s ON s.id = m.session"
    )
    while rows := messages.fetchmany(_AT_ONCE):
        connection.exec_driver_sql(
            "INSERT INTO session_index (rowid, said, tenant, session) VALUES (?, ?, ?, ?)",
            [
                (row_id, words, index_term_for_name(tenant), index_term_for_name(session))
                for row_id, words, tenant, session in rows
            ],
        )
    connection.exec_driver_sql("DROP TABLE session_search")
