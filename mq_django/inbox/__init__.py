"""The inbox: rows that name the messages whose handlers have run, in the transaction of the handler."""
