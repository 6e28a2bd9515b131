"""Identify callers, enforce limits and budgets, and count usage, cost and traffic."""
