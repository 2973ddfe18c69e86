"""The process that starts consumers, watches them, and does what needs no handler."""
