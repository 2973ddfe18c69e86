"""The recipes of docs/deployment.md, as far as a machine without a daemon can execute them."""
