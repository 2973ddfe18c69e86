from mq_django.testing.kit import MQ as MQ
from mq_django.testing.kit import MQTestMixin as MQTestMixin
from mq_django.testing.published import delivery as delivery
from mq_django.testing.published import including as including
from mq_django.testing.published import message as message
from mq_django.transport.private_server import PrivateServer as PrivateServer

__all__ = ["MQ", "MQTestMixin", "PrivateServer", "delivery", "including", "message"]
