"""Limits on the values that a request passes to its template; checked before any value is processed."""

from __future__ import annotations

from pumice.errors import RequestError
from pumice.isolation import measure

MAX_VALUES = 100_000  # strings, numbers, lists and objects in messages and tools together
MAX_CHARACTERS = 1 << 24  # in the strings among them
MAX_VARIABLE_VALUES = 1_000
MAX_VARIABLE_CHARACTERS = 1 << 16
MAX_ARGUMENTS = 1 << 20  # characters of a call's arguments, as JSON
MAX_ALLOWED = 1024  # tools that a choice of tools lists
MAX_NOTE = 1 << 16  # characters of any other string of a request that reaches the prompt


class SizeBudget:
    """Counts the values and characters of a request, and refuses a request that exceeds its limits."""

    def __init__(self, max_values: int = MAX_VALUES, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_values, self._max_characters = max_values, max_characters
        self._n_values = self._n_characters = 0

    def take(self, value: object, where: str) -> None:
        """Count ``value``. Raises RequestError if a limit is exceeded; ``where`` is the field named in the error."""
        n_values, n_characters = measure(value, self._max_values - self._n_values)
        self._n_values += n_values
        self._n_characters += n_characters
        if self._n_values > self._max_values:
            raise RequestError(
                f"{where}: more than {self._max_values} values (strings, numbers, lists, objects); send fewer"
            )
        if self._n_characters > self._max_characters:
            raise RequestError(f"{where}: {self._n_characters} characters, but the limit is {self._max_characters}")
