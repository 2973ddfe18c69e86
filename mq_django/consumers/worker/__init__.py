"""A consumer process: it fetches, runs and settles."""
