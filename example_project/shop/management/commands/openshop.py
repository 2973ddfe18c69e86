"""Make the shop ready for visitors."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from example_project.office.suppliers import upload_list
from example_project.shop import goods


class Command(BaseCommand):
    """`manage.py openshop`."""

    help = "Make the database, put goods on the shelves, upload a price list, and make the user of the admin."

    def handle(self, *args: Any, **options: Any) -> None:
        """See BaseCommand.handle()."""
        call_command("migrate", verbosity=0)
        goods.fill_shelves()
        goods.appoint_admin()
        upload_list()
        if options["verbosity"]:
            self.stdout.write(
                f"The shop is open. The admin's user is {goods.ADMIN_NAME}, password {goods.ADMIN_PASSWORD}."
            )
