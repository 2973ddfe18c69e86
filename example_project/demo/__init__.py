"""Start the shop with all that belongs to it, send visitors through it, and account for every message."""
