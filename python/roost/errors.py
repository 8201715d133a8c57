"""The exceptions of this package."""

__all__ = ["InternalError", "PolicyError", "ScenarioError"]


class ScenarioError(ValueError):
    """A scenario or an argument that cannot be: the message names the key, the problem and the fix.

    ``problem`` is the part before the hint, ``hint`` the fix, or an empty text if there is none.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.problem, _, self.hint = message.partition("\n\nhint: ")


class PolicyError(RuntimeError):
    """A policy of one's own cannot decide any more: it has raised an exception, which is the cause
    of this one, taken too long, or ordered the impossible."""


class InternalError(RuntimeError):
    """One of the simulator's own checks has failed: a fault of roost, never of the scenario."""
