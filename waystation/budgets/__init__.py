"""Budgets: limits, what was spent, and what is reserved."""
