"""Database servers for tests, each started for the process that runs them."""
