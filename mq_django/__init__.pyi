from mq_django.core.interrupts import HandlerCancelled as HandlerCancelled
from mq_django.core.interrupts import is_cancelled as is_cancelled
from mq_django.core.interrupts import uninterrupted as uninterrupted
from mq_django.core.lookup import CancelResult as CancelResult
from mq_django.core.lookup import Lookup as Lookup
from mq_django.core.lookup import Place as Place
from mq_django.core.messages import Message as Message
from mq_django.core.outcomes import Ack as Ack
from mq_django.core.outcomes import Bury as Bury
from mq_django.core.outcomes import Retry as Retry
from mq_django.core.retries import RetryPolicy as RetryPolicy
from mq_django.core.schedule_options import ScheduleOptions as ScheduleOptions
from mq_django.core.schedules import Cron as Cron
from mq_django.core.schedules import Every as Every
from mq_django.core.schedules import cron as cron
from mq_django.core.schedules import every as every
from mq_django.errors import MQError as MQError
from mq_django.producers.group_status import GroupPosition as GroupPosition
from mq_django.producers.group_status import GroupStatus as GroupStatus
from mq_django.producers.queues import Queue as Queue
from mq_django.producers.queues import queues as queues
from mq_django.producers.replay import Replayed as Replayed
from mq_django.producers.schedule_collection import schedules as schedules
from mq_django.producers.topics import Group as Group
from mq_django.producers.topics import Topic as Topic
from mq_django.producers.topics import topics as topics
from mq_django.registry import handler as handler
from mq_django.registry import subscriber as subscriber
from mq_django.stores.schedule_status import ScheduleStatus as ScheduleStatus
from mq_django.task_backend import MQTask as MQTask
from mq_django.task_backend import aenqueue_many as aenqueue_many
from mq_django.task_backend import enqueue_many as enqueue_many
from mq_django.task_backend import task as task
from mq_django.triggers import on_signal as on_signal

__version__: str
__all__: list[str]
