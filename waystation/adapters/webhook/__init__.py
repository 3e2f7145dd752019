"""What is told by HTTP: notices, in a shape that Slack's incoming webhooks and programs understand alike, and hooks."""
