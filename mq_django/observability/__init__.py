"""Integrations with monitoring software: each module is optional, and most need their own package."""
