"""Sessions with servers of revisions before 2026-07-28, on any transport."""
