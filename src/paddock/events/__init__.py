"""The append-only, durable event log and its followers."""
