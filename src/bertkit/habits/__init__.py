"""The names of other libraries, thin over ours; ``bertkit`` itself loads them when one is first used."""
