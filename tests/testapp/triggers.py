"""Functions that settings name by their paths. The triggers themselves are made by the tests."""


def is_owned(instance):
    return bool(instance.owner)


def cart_data(instance, created):
    return {"cart": instance.pk, "created": created}
