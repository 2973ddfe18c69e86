"""How the shop mails: for how long it tries, and a backend for the demo, where mails become files."""

from collections.abc import Sequence
from datetime import timedelta
from smtplib import SMTPRecipientsRefused

from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend

from mq_django import RetryPolicy

#: A mailbox that does not exist makes a dead letter at once: somebody has to fix the address first.
MAIL_PATIENCE = RetryPolicy(max_attempts=5, delay=timedelta(seconds=1), bury_on=(SMTPRecipientsRefused,))
#: Addresses here are refused as a mail server would: `.invalid` names exist nowhere, by RFC 2606.
REFUSED_DOMAIN = ".invalid"


class FolderBackend(EmailBackend):
    """Write each mail into the folder `EMAIL_FILE_PATH`, unless its recipient is refused."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Write the mails.

        Raises:
            SMTPRecipientsRefused: an address ends in `.invalid`; no mail was written.
        """
        for message in email_messages:
            refused = [address for address in message.recipients() if address.endswith(REFUSED_DOMAIN)]
            if refused:
                raise SMTPRecipientsRefused(dict.fromkeys(refused, (550, b"no such mailbox")))
        return super().send_messages(email_messages) or 0
