"""Errors that are told in one clear sentence, without a traceback."""


class UserError(Exception):
    """Something the user can put right; the message is one sentence that names the file, key or site."""


class RunStopped(Exception):
    """A run that could not go on; the message is one sentence, and everything finished is kept."""
