"""The opt-in compiled build: mypyc turns the hot modules of this source into C, as they are."""
