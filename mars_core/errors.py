"""The one exception type whose message is meant for a person."""


class MarsError(Exception):
    """A problem the user can act on: one line that says what is wrong and what to do.

    The command line prints it without a traceback, the page shows it as a sentence.
    """
