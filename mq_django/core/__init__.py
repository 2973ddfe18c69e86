"""What a message is and what happens to it, as values and arithmetic: no Django, no Redis."""
