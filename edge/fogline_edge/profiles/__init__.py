"""Profiles: what the topics and payloads of well-known programs mean. Tables and pure functions, no IO."""
