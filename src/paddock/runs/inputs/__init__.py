"""Inputs of runs: packing them into one tar, cloning repositories, and keeping uploads."""
