"""Helpers of the benchmarks: measured systems, their clients, and tables of results."""
