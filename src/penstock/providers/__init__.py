"""Providers: the built-in ones as data, the settings of one provider, and evidence of a stream's provider."""
