"""Tests of the agent engines."""
