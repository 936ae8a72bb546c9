"""One protocol a module or package: IO only; the codecs beside them are pure. None of them knows the outbox."""
