"""Execution of runs: the durable runner, its stages, end conditions and sandbox health."""
