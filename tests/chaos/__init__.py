"""The proof that no message is lost, and none handled twice without a fault: `make chaos`."""
