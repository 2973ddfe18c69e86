"""A push and SMS gateway such as a shop rents, and the shop's client for it."""
