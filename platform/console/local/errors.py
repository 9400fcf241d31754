"""The one kind of error that the local tools show: a sentence for the person at the terminal."""


class CannotRunError(Exception):
    """Something outside the code prevents the run; the message is one line that says what and what to do."""
