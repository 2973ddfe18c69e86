from mq_django import task
from shop.models import Order


@task
def confirm(order_id):
    Order.objects.filter(pk=order_id).update(confirmed=True)
    return order_id
