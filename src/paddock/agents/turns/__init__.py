"""Running turns: one task per session, concurrency, pauses during takeovers."""
