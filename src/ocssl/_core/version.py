"""The version of the installed package: the tag of its commit, written by the build into the package's metadata."""

from importlib.metadata import PackageNotFoundError, version


def installed(package: str = "ocssl") -> str:
    """The version that pip shows.

    >>> installed("no such package")
    '0+unknown'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "0+unknown"  # the source was put on the path without being installed


__version__ = installed()
