"""The real parts in small, and fakes that pass the contract suites of the real ones: for tests, demo and bench."""
