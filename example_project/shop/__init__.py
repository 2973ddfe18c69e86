"""Catalogue, cart and orders, and the messages that an order sets going."""
