"""The scripts there are."""

from importlib.resources import files


def lua_files() -> set[str]:
    """Return the names of all scripts."""
    folder = files("mq_django.transport").joinpath("lua")
    return {path.name.removesuffix(".lua") for path in folder.iterdir() if path.name.endswith(".lua")}


def outer_files() -> set[str]:
    """Return the names of the scripts that run another one inside them."""
    folder = files("mq_django.transport").joinpath("lua", "around")
    return {path.name.removesuffix(".lua") for path in folder.iterdir()}
