"""The cart of a session."""

from django.http import HttpRequest

from example_project.shop.models import Cart

SESSION_KEY = "cart"


def find_cart(request: HttpRequest) -> Cart | None:
    """Return the session's cart, unless it has none or ordered it."""
    cart_id = request.session.get(SESSION_KEY)
    if cart_id is None:
        return None
    return Cart.objects.filter(pk=cart_id, order=None).first()


def open_cart(request: HttpRequest) -> Cart:
    """Return the session's cart; a new one when there is none."""
    cart = find_cart(request)
    if cart is None:
        cart = Cart.objects.create()
        request.session[SESSION_KEY] = cart.pk
    return cart


def close_cart(request: HttpRequest) -> None:
    """Let the session begin another cart."""
    request.session.pop(SESSION_KEY, None)


def cart_size(request: HttpRequest) -> dict[str, int]:
    """Give every template the number of pieces in the cart."""
    cart = find_cart(request)
    return {"cart_size": sum(line.quantity for line in cart.lines.all()) if cart else 0}
