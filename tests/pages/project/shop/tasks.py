from mq_django import task


@task(queue_name="emails")
def remind(cart_id, email):
    """Send a mail to the owner of a cart."""
