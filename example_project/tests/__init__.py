"""The tests of the shop, with the test kit of mq_django: `python -m pytest example_project`."""
