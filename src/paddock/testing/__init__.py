"""Conformance suites and in-memory doubles for authors of plugins; nothing at runtime imports them."""
