from mq_django import task


@task(queue_name="emails")
def remind(cart_id, email):
    """Send a mail to the owner of a cart."""


@task
def clean(days):
    """Delete carts that nobody has changed for some days."""
