"""Routes for runs of tasks, their deliverables, and task files."""
