"""What is on the shelves, and who may look behind the counter."""

from django.contrib.auth import get_user_model

from example_project.shop.models import Product

ADMIN_NAME = "admin"
#: No secret: the demo listens on 127.0.0.1 alone, with a database of its own.
ADMIN_PASSWORD = "demo"

#: Picture, name, price, description.
GOODS = [
    ("blanket", "Deck blanket", "68.00", "Heavy wool, for the hours before the sun is up."),
    ("compass", "Pocket compass", "54.50", "Brass, oil-filled, and right about north."),
    ("kettle", "Galley kettle", "39.00", "Wide at the bottom, so it stays where it is put."),
    ("lamp", "Chart lamp", "82.00", "Throws its light on the table and not into your eyes."),
    ("lantern", "Storm lantern", "45.00", "Burns on in any wind that you can still stand in."),
    ("mug", "Enamel mug", "12.50", "Holds half a litre, and a fall from the quay."),
    ("notebook", "Log book", "18.00", "Two hundred pages of paper that takes ink when damp."),
    ("rope", "Mooring line", "31.00", "Twelve metres, spliced at one end."),
]


def fill_shelves() -> None:
    """Put the goods on sale."""
    for picture, name, price, description in GOODS:
        Product.objects.update_or_create(
            slug=picture,
            defaults={"name": name, "price": price, "description": description, "picture": picture},
        )


def appoint_admin() -> None:
    """Make the user who may see the admin."""
    users = get_user_model()
    if not users.objects.filter(username=ADMIN_NAME).exists():
        users.objects.create_superuser(ADMIN_NAME, "admin@localhost", ADMIN_PASSWORD)
