"""Configuration: settings, presets, and the numbers a task runs by."""
