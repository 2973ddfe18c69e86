"""Run a consumer process that is measured: `python -m` this in place of `django`.

prometheus_client chooses when it is imported whether its metrics go to files, so this must run before the settings.
"""

import sys

from django.core import management

from mq_django.consumers.measuring import Measurers
from mq_django.observability.process_metrics import ConsumerMetrics, use_allocated_files


def main() -> None:
    """Run the command line with a measurer."""
    use_allocated_files()
    Measurers.consumer = ConsumerMetrics()
    management.execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
