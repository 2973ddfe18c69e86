"""Integrations with monitoring software: each module is optional, and needs its own package."""
