"""Migrations: they make permissions, and the tables of the outbox and the inbox."""
