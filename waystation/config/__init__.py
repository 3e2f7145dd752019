"""Configuration: settings, presets, and the resolved config of a task."""
