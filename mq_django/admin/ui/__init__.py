"""Shared by all pages: permissions, tabs, charts, filters, confirmations and text."""
