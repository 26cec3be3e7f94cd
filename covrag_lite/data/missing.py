"""The error for data that is not on this machine."""


class DataMissing(FileNotFoundError):
    """Questions, passages or answers to judge that this machine does not have.

    Recorded outcomes can be shown without them.
    """
