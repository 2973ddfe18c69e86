"""Migrations: they make permissions, and no table."""
