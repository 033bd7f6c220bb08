"""What a request may bring to its template. It is counted before anything is done with each value."""

from __future__ import annotations

from pumice.errors import RequestError
from pumice.isolation import measure

MAX_VALUES = 100_000  # texts, numbers, lists and objects of messages and tools together
MAX_CHARACTERS = 1 << 24  # of their texts
MAX_VARIABLE_VALUES = 1_000
MAX_VARIABLE_CHARACTERS = 1 << 16
MAX_ARGUMENTS = 1 << 20  # characters of a call's arguments, as JSON
MAX_NOTE = 1 << 16  # characters of what else a request has the prompt say


class Budget:
    """Counts values and characters as they come, and refuses what goes beyond."""

    def __init__(self, max_values: int = MAX_VALUES, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_values, self._max_characters = max_values, max_characters
        self._n_values = self._n_characters = 0

    def take(self, value: object, where: str) -> None:
        """Raises RequestError, which says what is exceeded where."""
        n_values, n_characters = measure(value, self._max_values - self._n_values)
        self._n_values += n_values
        self._n_characters += n_characters
        if self._n_values > self._max_values:
            raise RequestError(
                f"{where}: more than {self._max_values} values (texts, numbers, lists, objects): send fewer"
            )
        if self._n_characters > self._max_characters:
            raise RequestError(f"{where}: {self._n_characters} characters, at most {self._max_characters} are taken")
