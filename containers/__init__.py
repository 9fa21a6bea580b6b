"""What runs inside sandboxes, and the small project of ``airlock demo``, as data files.

Installed as ``broker.bundled``. Nothing here is imported by the trusted side: the
folders are copied into sandboxes as they are.
"""
