"""Calculations and queries over tables: SQL by DuckDB, in a child that can reach nothing."""
