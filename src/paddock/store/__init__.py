"""Persistence: SQL tables, named queries and migrations."""
