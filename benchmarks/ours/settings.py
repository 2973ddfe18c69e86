"""A project as small as can be: our app, handlers, and a database as every Django project has one."""

import json
import os

from benchmarks import messages

SECRET_KEY = "only for measuring"
USE_TZ = True
INSTALLED_APPS = ["mq_django", "benchmarks.ours"]
#: The options of the database, as JSON, if it is more than one that every Django project has.
DATABASE = json.loads(os.environ.get("BENCH_DATABASE", "{}"))
DATABASES = {"default": DATABASE or {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
if DATABASE.get("ENGINE", "").endswith("mysql"):
    from tests.databases.database_servers import use_pymysql

    use_pymysql()
#: Options of all queues, if these are measured: HISTORY, in seconds, and others as JSON.
OPTIONS = {"HISTORY": float(keep)} if (keep := os.environ.get("BENCH_HISTORY")) else {}
OPTIONS |= json.loads(os.environ.get("BENCH_OPTIONS", "{}"))
MQ_DJANGO = {
    "CONNECTION": os.environ["BENCH_REDIS_URL"],
    "QUEUES": {messages.queue_name(number): OPTIONS for number in range(messages.QUEUES)},
}
