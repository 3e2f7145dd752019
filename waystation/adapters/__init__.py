"""Everything outside the core, one folder a vendor or kind; only the entry points import these."""
