"""Servers that are reached by HTTP, in each revision and transport."""
