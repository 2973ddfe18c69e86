def bill_again(message):
    """Send the bill of an order again."""
