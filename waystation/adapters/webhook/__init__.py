"""Notices by HTTP: a POST that Slack's incoming webhooks and programs understand alike."""
