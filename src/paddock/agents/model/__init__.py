"""Model requests of sessions: streaming, recorded replies, compaction and budgets."""
