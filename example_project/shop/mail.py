"""A mail backend for the demo: mails become files, and some mailboxes do not exist."""

from collections.abc import Sequence
from smtplib import SMTPRecipientsRefused

from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend

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
