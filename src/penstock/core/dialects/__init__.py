"""Wire formats, one module each: what a provider's JSON means as events, and how events are written as JSON."""
