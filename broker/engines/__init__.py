"""Isolation engines: what starts a sandbox, limits it, and leaves nothing of it behind."""
