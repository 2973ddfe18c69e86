"""An app whose receivers note the problems of queues, in processes of their own."""
