from prometheus_client import Counter, Gauge

from mq_django import Message, handler

ORDERS = Counter("shop_orders", "Orders.", ["kind"])
LATEST = Gauge("shop_latest_order", "The number of the latest order.", multiprocess_mode="mostrecent")


@handler("default", "count")
def count(message: Message) -> None:
    ORDERS.labels("a").inc()
    LATEST.set(message.attempt)
