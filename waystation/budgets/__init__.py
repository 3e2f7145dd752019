"""Budgets: what may be spent, what was, and what a token costs."""
